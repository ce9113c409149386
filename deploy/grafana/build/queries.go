package main

import (
	"fmt"
	"slices"
	"strings"
)

// rate returns the expression for the increase per second of a counter, summed by labels ("" for none).
func rate(metric, selector, by string) string {
	return fmt.Sprintf("sum%s (rate(%s{%s}[$__rate_interval]))", grouped(by), metric, selector)
}

// nativeHistograms have a native form beside the classic one. A Prometheus that takes native histograms stores only
// that, unless it keeps both: expressions ask for the classic form, and for the native one where there is none.
var nativeHistograms = []string{"fermata_schedule_lag_seconds", "fermata_attempt_seconds", "fermata_run_seconds"}

// quantile returns the expression for a quantile of a histogram, by labels.
func quantile(q float64, metric, selector, by string) string {
	labels := "le"
	if by != "" {
		labels = by + ", le"
	}
	classic := fmt.Sprintf("histogram_quantile(%v, %s)", q, rate(metric+"_bucket", selector, labels))
	if !slices.Contains(nativeHistograms, metric) {
		return classic
	}
	return fmt.Sprintf("%s or histogram_quantile(%v, %s)", classic, q, rate(metric, selector, by))
}

// mean returns the expression for the mean of a histogram, by labels.
func mean(metric, selector, by string) string {
	classic := rate(metric+"_sum", selector, by) + " / " + rate(metric+"_count", selector, by)
	if !slices.Contains(nativeHistograms, metric) {
		return classic
	}
	native := rate(metric, selector, by)
	return fmt.Sprintf("%s or histogram_sum(%s) / histogram_count(%s)", classic, native, native)
}

// buckets returns the expression for the buckets of a classic histogram over time.
func buckets(metric, selector string) string { return rate(metric+"_bucket", selector, "le") }

// nativeBuckets makes classic buckets from a native histogram where there are none, for
// panels that cannot draw native ones. Where nothing was observed the fraction is NaN, and left out.
func nativeBuckets(metric, selector string, bounds ...string) string {
	native := rate(metric, selector, "")
	each := make([]string, len(bounds))
	for i, bound := range bounds {
		each[i] = fmt.Sprintf(
			`label_replace(histogram_fraction(-Inf, %s, %s) * histogram_count(%s) >= 0, "le", "%s", "", "")`,
			bound, native, native, bound)
	}
	return "(" + strings.Join(each, " or ") + ") unless on () " + buckets(metric, selector)
}

// lateStarts and allStarts count the attempts of a time. A run that has waited for more than a second counts as late
// before it starts: "or" adds those that wait now, since their series have no label timing, and either may be missing.
func lateStarts(selector, window string) string { return starts(selector, `,timing="late"`, window) }
func allStarts(selector, window string) string  { return starts(selector, "", window) }

func starts(selector, timing, window string) string {
	return fmt.Sprintf("sum(increase(fermata_starts_total{%s%s}[%s]) or fermata_runs_overdue{%s})",
		selector, timing, window, selector)
}

// worst is a table of jobs by name. Without any, a row has the text none.
func worst(metric string) string {
	return orRow(fmt.Sprintf("topk(20, max by (namespace, queue, job_id) (%s{%s}))", metric, inQueue), "job_id")
}

// orRow adds a row "none" to a table that would have no rows. Grafana 9 would show "No data" for it.
func orRow(expr, column string) string {
	return fmt.Sprintf(`%s or on () label_replace(vector(0), "%s", "none", "", "")`, expr, column)
}

// sum and greatest return expressions for a gauge, by labels.
func sum(metric, selector, by string) string {
	return fmt.Sprintf("sum%s (%s{%s})", grouped(by), metric, selector)
}

func greatest(metric, selector, by string) string {
	return fmt.Sprintf("max%s (%s{%s})", grouped(by), metric, selector)
}

func grouped(by string) string {
	if by == "" {
		return ""
	}
	return " by (" + by + ")"
}
