package main

import "fmt"

// rate is the sum of the increases a second of a counter, by some labels ("" for none).
func rate(metric, selector, by string) string {
	return fmt.Sprintf("sum%s (rate(%s{%s}[$__rate_interval]))", grouped(by), metric, selector)
}

// quantile is that of a histogram, by some labels.
func quantile(q float64, metric, selector, by string) string {
	if by != "" {
		by += ", "
	}
	return fmt.Sprintf("histogram_quantile(%v, sum by (%sle) (rate(%s_bucket{%s}[$__rate_interval])))", q, by, metric, selector)
}

// mean is that of a histogram, by some labels.
func mean(metric, selector, by string) string {
	return rate(metric+"_sum", selector, by) + " / " + rate(metric+"_count", selector, by)
}

// worst is a table of jobs by name. Nodes name none unless they are told to: then a row
// says so.
func worst(metric string) string {
	return fmt.Sprintf(`topk(20, max by (namespace, queue, job_id) (%s{%s})) or label_replace(vector(0), "job_id", "none, or nodes run without --worst-jobs", "", "")`, metric, inQueue)
}

// sum and greatest are of a gauge, by some labels.
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
