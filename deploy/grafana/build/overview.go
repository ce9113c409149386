package main

import "strconv"

// onTime is the share of attempts that started within the objective's second.
var onTime = "1 - " + lateStarts(inQueue, "$__range") + " / " + allStarts(inQueue, "$__range")

func overview() dashboard {
	lag := "fermata_schedule_lag_seconds"
	return newDashboard("overview", "Overview", "Is the schedule kept, and what stands in its way?", []variable{namespaceVar, queueVar, nodeVar},
		part("Is the schedule kept?",
			number("Alerts firing", "short", "What `deploy/prometheus/rules.yaml` finds wrong now. Grafana's list of alert rules, or Alertmanager, names them; docs/runbooks.md says for each what to do.", `count(ALERTS{alertname=~"Fermata.*",alertstate="firing"}) or vector(0)`).warn(1, 1).size(3, 4),
			number("Started within 1 s", "percentunit", "Share of attempts that started within a second of being due; runs that wait now for longer count as late. The objective is 99 %. Below it: see which queue is late under Queues & workers. Late everywhere means Redis or too few nodes, late in one queue too few slots.", onTime).warn(.995, .99).to("queues", "Queues & workers"),
			number("Lag, 99th percentile", "s", "Start minus due time. Rising with the backlog: add workers. Rising without one: look at Redis's latency.", quantile(.99, lag, inQueue, "")).warn(.25, 1).to("redis", "Redis"),
			number("Longest waiting", "s", "How long the due record that waits longest has waited. Above a minute: its queue has no free slot, or no worker.", greatest("fermata_queue_oldest_overdue_seconds", inQueue, "")).warn(5, 60).to("queues", "Queues & workers").size(3, 4),
			number("Backlog", "short", "Due records without a slot. It should return to zero; if it only grows, add workers or slots.", sum("fermata_queue_backlog", inQueue, "")).warn(100, 1000).to("queues", "Queues & workers").size(3, 4),
			number("Dead letters kept", "short", "Runs out of attempts that wait for a person. `fermata dead-letters list`, then `fermata dead-letters redrive`, or let them expire.", sum("fermata_queue_records", inQueue+`,region="dead"`, "")).warn(1, 100).to("backoff", "Backoff & failures").size(3, 4),
			number("Shards nobody holds", "short", "Their jobs do not run. It is zero but for moments; if it stays, see Cluster, then the log of the node that should hold them.", greatest("fermata_shards_without_holder", onNode, "")).warn(1, 2).to("cluster", "Cluster"),
		),
		part("Which jobs?",
			list("Jobs that fail longest", "short", "Failed runs in a row. `fermata jobs explain` says what a job waits for, `fermata jobs runs` has the error. Each node names its ten worst, or as many as `--metrics-top-jobs` says; `fermata failing` lists more.", worst("fermata_top_job_failures")),
			list("Latest jobs", "s", "How long runs have waited, or were late where that broke their `max_lag`. `fermata jobs explain` says what one waits for. Each node names its ten latest, or as many as `--metrics-top-jobs` says; `fermata late` lists more.", worst("fermata_top_job_lag_seconds")),
			stacked("Broken lateness objectives", "short", "Runs an hour that broke their job's `max_lag`, by queue. `late`: started too late; see the queue's slots, then what holds runs back. `missed`: nobody was there in time.", series{"{{namespace}}/{{queue}} {{reason}}", `sum by (namespace, queue, reason) (increase(fermata_lag_breaches_total{` + inQueue + `}[1h]))`}),
			bars("Failing jobs", "short", "Jobs with at least so many failed runs in a row. Many with one: something they share has just broken. Many with ten: nobody looks.", byDepth()...),
		),
		part("Lateness",
			graph("Schedule lag", "s", "Start minus due time. The distance between the median and the 99th percentile is queueing.",
				series{"median", quantile(.5, lag, inQueue, "")}, series{"99 %", quantile(.99, lag, inQueue, "")}, series{"99.9 %", quantile(.999, lag, inQueue, "")}),
			heat("Schedule lag, all starts", "s", "One column is one interval. A second band apart from the first is one queue, one shard or one node: choose it above.",
				buckets(lag, inQueue), nativeBuckets(lag, inQueue, "0.001", "0.01", "0.1", "0.5", "1", "5", "10", "60", "300", "+Inf")),
			graph("Lag by queue, 99th percentile", "s", "Which queue is late. Compare it with its free slots under Queues & workers.", series{"{{namespace}}/{{queue}}", quantile(.99, lag, inQueue, "namespace, queue")}).to("queues", "Queues & workers"),
			graph("Error budget burnt", "short", "How many times faster than allowed the objective's error budget is spent, over 5 minutes, 1 hour and 6 hours. 14.4 over an hour pages.",
				series{"5 m", "fermata:schedule_late:ratio_rate5m{" + inCluster + "} / 0.01"}, series{"1 h", "fermata:schedule_late:ratio_rate1h{" + inCluster + "} / 0.01"}, series{"6 h", "fermata:schedule_late:ratio_rate6h{" + inCluster + "} / 0.01"}).whenEmpty("none: nothing started, or rules.yaml is not loaded").warn(6, 14.4),
		),
		part("Work",
			stacked("Runs that ended", "ops", "By outcome. `dead` and `quarantined` need a person; `cancelled` is by somebody's will.", series{"{{outcome}}", rate("fermata_runs_total", inQueue, "outcome")}).to("backoff", "Backoff & failures"),
			stacked("Runs by trigger", "ops", "What is not `schedule` was asked for by people, or fills the past. A backfill that crowds the schedule out: give its jobs a lower priority, or a queue of their own.", series{"{{trigger}}", rate("fermata_runs_total", inQueue, "trigger")}),
			stacked("What held runs back", "s", "Seconds of waiting added each second, by reason. `no_worker`: nobody served the queue, start workers for it. `slot`: its workers were busy, add some. `rate`, `queue`, `lock`, `pace`, `target`: limits that somebody set. `queue_paused`, `paused`: somebody paused the queue, or the job. `backoff`, `retry`: failures.", series{"{{reason}}", rate("fermata_held_seconds_total", inQueue, "reason")}),
			stacked("Nominal times without a run", "ops", "By reason. `backoff`: passed over on purpose after failures, see Backoff & failures. `overlap`: runs take longer than their interval, make one of them shorter. `misfire`: nobody was there in time, look at slots and nodes.", series{"{{reason}}", rate("fermata_nominal_times_skipped_total", inQueue, "reason")}).orNone(),
			stacked("Records", "short", "By region of the index. `dead` and `paused` that only grow are forgotten work.", series{"{{region}}", sum("fermata_queue_records", inQueue, "region")}),
			number("Early starts", "short", "Attempts before their due time, in the range shown. Any is a defect: report it with the logs of the node.", `sum(increase(fermata_early_starts_total{`+inQueue+`}[$__range]))`).warn(1, 1).size(6, 8),
			number("Nodes", "short", "Nodes that are scraped. Fewer than were started: see Cluster.", "count(fermata_build_info{"+onNode+"})").size(6, 8).to("cluster", "Cluster"),
		),
	)
}

// failureDepths are the bounds of fermata_failing_jobs.
var failureDepths = []int64{1, 2, 3, 5, 10, 20}

// byDepth are the failing jobs by failed runs in a row. Each bound is asked for by itself: Prometheus would sort them as text.
func byDepth() (all []series) {
	for _, n := range failureDepths {
		depth := strconv.FormatInt(n, 10)
		all = append(all, series{depth + " or more", sum("fermata_failing_jobs", onNode+`,failures="`+depth+`"`, "")})
	}
	return all
}
