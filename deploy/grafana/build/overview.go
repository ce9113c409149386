package main

import "strconv"

// onTime is the share of attempts that started within the objective's second.
var onTime = "1 - " + lateStarts(inQueue, "$__range") + " / " + allStarts(inQueue, "$__range")

func overview() dashboard {
	lag := "fermata_schedule_lag_seconds"
	return newDashboard("overview", "Overview", "Do runs start on time, and what delays them?",
		[]variable{namespaceVar, queueVar, nodeVar},
		part("Do runs start on time?",
			number("Alerts firing", "short", "Alerts of `deploy/prometheus/rules.yaml` that fire now. Grafana's list of alert rules, or Alertmanager, names them. docs/runbooks.md has the steps for each.", `count(ALERTS{alertname=~"Fermata.*",alertstate="firing"}) or vector(0)`).warn(1, 1).size(3, 4),
			number("Started within 1 s", "percentunit", "Share of attempts that started within a second of their due time. Runs that have waited for longer count as late. The objective is 99 %. If it is lower, find the late queue under Queues & workers. If all queues are late, look at Redis or add nodes; if one is, add slots.", onTime).warn(.995, .99).to("queues", "Queues & workers"),
			number("Lag, 99th percentile", "s", "Start minus due time. If it rises with the backlog, add workers. If it rises without a backlog, look at Redis's latency.", quantile(.99, lag, inQueue, "")).warn(.25, 1).to("redis", "Redis"),
			number("Longest wait", "s", "How long the oldest due run has waited. Above a minute: its queue has no free slot, or no worker.", greatest("fermata_queue_oldest_overdue_seconds", inQueue, "")).warn(5, 60).to("queues", "Queues & workers").size(3, 4),
			number("Backlog", "short", "Due runs without a slot. It should return to zero. If it only grows, add workers or slots.", sum("fermata_queue_backlog", inQueue, "")).warn(100, 1000).to("queues", "Queues & workers").size(3, 4),
			number("Dead letters kept", "short", "Runs without attempts left, kept for people. `fermata dead-letters list`, then `fermata dead-letters redrive`, or let them expire.", sum("fermata_queue_records", inQueue+`,region="dead"`, "")).warn(1, 100).to("backoff", "Backoff & failures").size(3, 4),
			number("Shards without a holder", "short", "Their jobs do not run. It should be zero, except for moments. If it stays above zero, see Cluster, then the log of the node that should hold them.", greatest("fermata_shards_without_holder", onNode, "")).warn(1, 2).to("cluster", "Cluster"),
		),
		part("Which jobs?",
			list("Longest failing jobs", "short", "Consecutive failed runs. `fermata jobs explain` shows what a job waits for, `fermata jobs runs` shows the error. Each node names its ten worst jobs, or the number in `--metrics-top-jobs`. `fermata failing` lists more.", worst("fermata_top_job_failures")),
			list("Most overdue jobs", "s", "How long runs have waited, or how late they were if they broke their `max_lag`. `fermata jobs explain` shows what a job waits for. Each node names its ten most overdue jobs, or the number in `--metrics-top-jobs`. `fermata late` lists more.", worst("fermata_top_job_lag_seconds")),
			stacked("Broken lateness objectives", "short", "Runs per hour that broke their job's `max_lag`, by queue. `late`: the run started too late; look at the queue's slots, then at what holds runs back. `missed`: no node or worker was there in time.", series{"{{namespace}}/{{queue}} {{reason}}", `sum by (namespace, queue, reason) (increase(fermata_lag_breaches_total{` + inQueue + `}[1h]))`}),
			bars("Failing jobs", "short", "Jobs with at least this many consecutive failed runs. Many with one: something that they share has just broken. Many with ten: nobody looks at them.", byDepth()...),
		),
		part("Lateness",
			graph("Schedule lag", "s", "Start minus due time. The distance between the median and the 99th percentile is time spent in queues: add slots if it grows.",
				series{"median", quantile(.5, lag, inQueue, "")}, series{"99 %", quantile(.99, lag, inQueue, "")}, series{"99.9 %", quantile(.999, lag, inQueue, "")}),
			heat("Schedule lag, all starts", "s", "Each column is one interval. A second band apart from the first is one queue, one shard or one node: select it above.",
				buckets(lag, inQueue), nativeBuckets(lag, inQueue, "0.001", "0.01", "0.1", "0.5", "1", "5", "10", "60", "300", "+Inf")),
			graph("Lag by queue, 99th percentile", "s", "Shows which queue is late. Compare it with its free slots under Queues & workers.", series{"{{namespace}}/{{queue}}", quantile(.99, lag, inQueue, "namespace, queue")}).to("queues", "Queues & workers"),
			graph("Error budget burn rate", "short", "How many times faster than allowed the objective's error budget is used, over 5 minutes, 1 hour and 6 hours. At 14.4 over an hour an alert pages.",
				series{"5 m", "fermata:schedule_late:ratio_rate5m{" + inCluster + "} / 0.01"}, series{"1 h", "fermata:schedule_late:ratio_rate1h{" + inCluster + "} / 0.01"}, series{"6 h", "fermata:schedule_late:ratio_rate6h{" + inCluster + "} / 0.01"}).whenEmpty("none: nothing started, or rules.yaml is not loaded").warn(6, 14.4),
		),
		part("Work",
			stacked("Runs that ended", "ops", "By outcome. Somebody has to look at `dead` and `quarantined`. `cancelled` runs were cancelled on purpose.", series{"{{outcome}}", rate("fermata_runs_total", inQueue, "outcome")}).to("backoff", "Backoff & failures"),
			stacked("Runs by trigger", "ops", "All triggers but `schedule` are manual runs or backfills. If a backfill delays scheduled runs, give its jobs a lower priority, or their own queue.", series{"{{trigger}}", rate("fermata_runs_total", inQueue, "trigger")}),
			stacked("What held runs back", "s", "Seconds of waiting added each second, by reason. `no_worker`: no worker serves the queue, start one. `slot`: the workers are busy, add slots. `rate`, `queue`, `lock`, `pace`, `target`: limits that somebody set. `queue_paused`, `paused`: somebody paused the queue or the job. `backoff`, `retry`: failures.", series{"{{reason}}", rate("fermata_held_seconds_total", inQueue, "reason")}),
			stacked("Scheduled times without a run", "ops", "By reason. `backoff`: skipped on purpose after failures, see Backoff & failures. `overlap`: runs take longer than their interval, change one of the two. `misfire`: no node or worker was there in time, look at slots and nodes.", series{"{{reason}}", rate("fermata_nominal_times_skipped_total", inQueue, "reason")}).orNone(),
			stacked("Records", "short", "By region of the index. If `dead` or `paused` only grow, work was forgotten.", series{"{{region}}", sum("fermata_queue_records", inQueue, "region")}),
			number("Early starts", "short", "Attempts that started before their due time, in the selected range. Each one is a defect: report it with the logs of the node.", `sum(increase(fermata_early_starts_total{`+inQueue+`}[$__range]))`).warn(1, 1).size(6, 8),
			number("Nodes", "short", "Nodes that are scraped. If there are fewer than you started, see Cluster.", "count(fermata_build_info{"+onNode+"})").size(6, 8).to("cluster", "Cluster"),
		),
	)
}

// failureDepths are the bounds of fermata_failing_jobs.
var failureDepths = []int64{1, 2, 3, 5, 10, 20}

// byDepth are the failing jobs by failed runs in a row. Each bound is asked for by itself: Prometheus would sort them
// as text.
func byDepth() (all []series) {
	for _, n := range failureDepths {
		depth := strconv.FormatInt(n, 10)
		all = append(all, series{depth + " or more", sum("fermata_failing_jobs", onNode+`,failures="`+depth+`"`, "")})
	}
	return all
}
