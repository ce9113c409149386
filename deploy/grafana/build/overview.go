package main

// onTime is the share of attempts that started within the objective's second.
const onTime = `sum(rate(fermata_schedule_lag_seconds_bucket{` + inQueue + `,le=~"1|1.0"}[$__range])) / sum(rate(fermata_schedule_lag_seconds_count{` + inQueue + `}[$__range]))`

func overview() dashboard {
	lag := "fermata_schedule_lag_seconds"
	return newDashboard("overview", "Overview", "Is the schedule kept, and what stands in its way?", []variable{namespaceVar, queueVar, nodeVar},
		part("Is the schedule kept?",
			number("Started within 1 s", "percentunit", "Share of attempts that started within a second of being due; the objective is 99 %. Below it: see which queue is late under Queues & workers. Late everywhere means Redis or too few nodes, late in one queue too few slots.", onTime).warn(.995, .99),
			number("Lag, 99th percentile", "s", "Start minus due time. Rising with the backlog: add workers. Rising without one: look at Redis's latency.", quantile(.99, lag, inQueue, "")).warn(.25, 1),
			number("Longest waiting", "s", "How long the due record that waits longest has waited. Above a minute: its queue has no free slot, or no worker.", greatest("fermata_queue_oldest_overdue_seconds", inQueue, "")).warn(5, 60),
			number("Backlog", "short", "Due records without a slot. It should return to zero; if it only grows, add workers or slots.", sum("fermata_queue_backlog", inQueue, "")).warn(100, 1000),
			number("Dead letters kept", "short", "Runs out of attempts that wait for a person. `fermata dead list`, then `fermata dead redrive`, or let them expire.", sum("fermata_queue_records", inQueue+`,region="dead"`, "")).warn(1, 100),
			number("Shards nobody holds", "short", "Their jobs do not run. It is zero but for moments; if it stays, see Cluster, then the log of the node that should hold them.", greatest("fermata_shards_without_holder", "", "")).warn(1, 2),
		),
		part("Lateness",
			graph("Schedule lag", "s", "Start minus due time. The distance between the median and the 99th percentile is queueing.",
				series{"median", quantile(.5, lag, inQueue, "")}, series{"99 %", quantile(.99, lag, inQueue, "")}, series{"99.9 %", quantile(.999, lag, inQueue, "")}),
			heat("Schedule lag, all starts", "s", "One column is one interval. A second band apart from the first is one queue, one shard or one node: choose it above.", rate(lag+"_bucket", inQueue, "le")),
			graph("Lag by queue, 99th percentile", "s", "Which queue is late. Compare it with its free slots under Queues & workers.", series{"{{namespace}}/{{queue}}", quantile(.99, lag, inQueue, "namespace, queue")}),
			graph("Error budget burnt", "short", "How many times faster than allowed the objective's error budget is spent, over 5 minutes, 1 hour and 6 hours. 14.4 over an hour pages.",
				series{"5 m", "fermata:schedule_late:ratio_rate5m / 0.01"}, series{"1 h", "fermata:schedule_late:ratio_rate1h / 0.01"}, series{"6 h", "fermata:schedule_late:ratio_rate6h / 0.01"}).warn(6, 14.4),
		),
		part("Work",
			stacked("Runs that ended", "ops", "By outcome. `dead` and `quarantined` need a person; `cancelled` is by somebody's will.", series{"{{outcome}}", rate("fermata_runs_total", inQueue, "outcome")}),
			stacked("Runs by trigger", "ops", "What is not `schedule` was asked for by people, or fills the past.", series{"{{trigger}}", rate("fermata_runs_total", inQueue, "trigger")}),
			stacked("What held runs back", "s", "Seconds of waiting added each second, by reason. `slot`: add workers. `lock`, `queue`, `pace`, `target`: limits that somebody set. `backoff`, `retry`: failures.", series{"{{reason}}", rate("fermata_held_seconds_total", inQueue, "reason")}),
			stacked("Nominal times without a run", "ops", "By reason. `overlap`: runs take longer than their interval. `misfire`: nobody was there in time.", series{"{{reason}}", rate("fermata_nominal_skipped_total", inQueue, "reason")}),
			stacked("Records", "short", "By region of the index. `dead` and `paused` that only grow are forgotten work.", series{"{{region}}", sum("fermata_queue_records", inQueue, "region")}),
			number("Early starts", "short", "Attempts before their due time, in the range shown. Any is a defect: report it with the logs of the node.", `sum(increase(fermata_early_starts_total{`+inQueue+`}[$__range]))`).warn(1, 1).size(6, 8),
			number("Nodes", "short", "Nodes that are scraped. Fewer than were started: see Cluster.", "count(fermata_build_info)").size(6, 8),
		),
	)
}
