package observability

import (
	"maps"
	"slices"
	"testing"
)

// TestRealClusterAndPrometheus watches a cluster with work and trouble through a real Prometheus.
func TestRealClusterAndPrometheus(t *testing.T) {
	b := newBed(t)
	b.createLoad()
	scraped := make(map[string]*family)
	b.prometheus.awaitResult(`sum by (queue) (fermata_queue_records{region="paused"}) > 0`)
	b.prometheus.awaitResult(`sum(fermata_admission_circuits_opened_total) > 0 and sum(fermata_retries_total) > 0 and sum(fermata_runs_total{outcome="dead"}) > 0`)
	b.resumeLoad()
	b.startLate()
	for _, p := range b.all { // at once: with each start that is on time the share falls
		t.Run(p.mode.name+" late starts", func(t *testing.T) {
			p.awaitAnswers(t, question{"late starts alert", `ALERTS{alertname="FermataScheduleLateFast"} and on () fermata_shards`, true})
		})
	}
	b.prometheus.awaitResult(`fermata_held_seconds_total{reason="paused"} > 0`)
	scrapeMetrics(t, b.nodes[0].http, scraped)
	b.takenOver()
	for _, n := range b.nodes[1:] {
		scrapeMetrics(t, n.http, scraped)
	}
	for _, w := range b.workers {
		scrapeMetrics(t, w.http, scraped)
	}
	scrapeMetrics(t, b.gateway.http, scraped)
	t.Run("documentation", func(t *testing.T) { compareDocs(t, scraped) })
	t.Run("held", func(t *testing.T) {
		for _, reason := range []string{"slot", "backoff", "retry", "paused", "lock", "target"} {
			b.prometheus.awaitAnswers(t, question{"time held", `sum(fermata_held_seconds_total{reason="` + reason + `"}) > 0`, true})
		}
	})
	t.Run("shards", func(t *testing.T) {
		b.prometheus.awaitAnswers(t,
			question{"shards held", `sum(fermata_shards_held) == max(fermata_shards)`, true},
			question{"shards owned", `sum(fermata_shards_owned{instance!="` + b.nodes[0].name + `"}) == max(fermata_shards)`, true},
			question{"queue without a worker", `fermata:queue_unserved:backlog{queue="nobody"} > 0`, true},
			question{"killed node", `up{job="fermata"} == 0`, true},
			question{"what is held back by the want of a worker alerts", `ALERTS{alertname="FermataQueueWithoutWorker"} and on () fermata_shards`, true},
			question{"an unsafe Redis alerts", `ALERTS{alertname="FermataRedisUnsafe",code="eviction"} and on (code) fermata_redis_findings`, true},
			question{"a killed node alerts", `ALERTS{alertname="FermataNodeDown"} and on () fermata_shards`, true},
		)
	})
	for _, p := range b.all {
		t.Run(p.mode.name, func(t *testing.T) { askAll(t, p) })
	}
}

// askAll asks all that dashboards and rules ask.
func askAll(t *testing.T, p *prometheus) {
	boards := readDashboards(t)
	for _, file := range slices.Sorted(maps.Keys(boards)) {
		t.Run(file, func(t *testing.T) { p.awaitAnswers(t, boards[file].allQuestions()...) })
	}
	t.Run("rules", func(t *testing.T) {
		var all []question
		for _, r := range readRules(t) {
			// An alert that does not fire finds nothing; what it asks for has to be there.
			all = append(all, question{r.Alert + r.Record, r.Expr, r.Record != ""})
		}
		p.awaitAnswers(t, all...)
	})
	// Buckets of both forms would be drawn on top of one another.
	t.Run("one form of buckets", func(t *testing.T) {
		for file, d := range boards {
			for _, panel := range d.Panels {
				if panel.Type == "heatmap" {
					p.answersOnce(t, file+", "+panel.Title, panel.expressions())
				}
			}
		}
	})
}

// answersOnce wants an answer to just one of some expressions.
func (p *prometheus) answersOnce(t *testing.T, what string, exprs []string) {
	t.Helper()
	answered := 0
	for _, expr := range exprs {
		found, err := p.queryNow(fillVariables(expr))
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if len(found) > 0 {
			answered++
		}
	}
	if answered != 1 {
		t.Errorf("%s: %d of %d expressions have an answer, want 1", what, answered, len(exprs))
	}
}
