package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

// scaling measures what more nodes, a Redis Cluster and confirmation by a replica cost:
// the backlog of drain, with 512 slots or 10. All processes share the machine's cores, so
// rates fall with their number; what counts is what a job costs Redis, and how often
// Redis is asked for it.
var scaling = Scenario{
	Name: "scaling", MaxRounds: 1,
	Title: "More nodes, more masters, and a replica that confirms",
	Text: "The backlog of one-time jobs with 512 slots in one worker, or 10. It is connected to one node, so that of 8 " +
		"nodes 7 lease by its permits. Reads: how often the Redis servers together read from a connection, about the round " +
		"trips. \"aof\": appendonly everysec. \"replica\": the same and --durability replica: a replica on the same " +
		"machine confirms each write (its CPU is not in the figure).",
	Metrics: []Metric{
		{"rate", "jobs/s", 0}, {"cpu_redis", "Redis us/job", 1}, {"cpu_scheduler", "schedulers us/job", 1},
		{"reads", "reads/job", 3},
	},
	Cases: func(p Params) []Case {
		n := p.jobs(200_000, 40_000)
		var cases []Case
		for _, c := range []struct {
			name string
			backlog
		}{
			{nodesName(1), backlog{nodes: 1}}, {nodesName(2), backlog{nodes: 2}},
			{nodesName(4), backlog{nodes: 4}}, {nodesName(8), backlog{nodes: 8}},
			{nodesName(2) + ", 10 slots", backlog{nodes: 2, slots: 10}},
			{nodesName(4) + ", 10 slots", backlog{nodes: 4, slots: 10}},
			{clusterName, backlog{masters: 3}}, {"aof", backlog{aof: true}}, {"replica", backlog{replica: true}},
		} {
			c.n, c.slots = n, cmp.Or(c.slots, 512)
			cases = append(cases, Case{
				Peer: peerFermata, Setting: c.name,
				Run: func(ctx context.Context, r *runner) (Sample, error) {
					return backlogFermata(ctx, r, c.backlog)
				},
			})
		}
		return cases
	},
	Targets: func(r Results) []Target {
		against := func(setting, base, key string) float64 {
			return r.Of(peerFermata, setting, key) / r.Of(peerFermata, base, key)
		}
		of := func(setting, key string) float64 { return against(setting, nodesName(1), key) }
		return []Target{
			{Text: "Redis CPU of a job with 8 nodes, against 1", Value: of(nodesName(8), "cpu_redis"),
				Required: 1.15, Aimed: 1, AtMost: true, Unit: "x"},
			{Text: "Redis CPU of a job on a cluster of 3, against one server", Value: of(clusterName, "cpu_redis"),
				Required: 1.3, Aimed: 1, AtMost: true, Unit: "x"},
			{Text: "reads a job on a cluster of 3, against one server", Value: of(clusterName, "reads"),
				Required: 3, Aimed: none, AtMost: true, Unit: "x"},
			{Text: "throughput with a replica that confirms, share of that without",
				Value:    100 * against("replica", "aof", "rate"),
				Required: 70, Aimed: none, Unit: "%"},
		}
	},
}

const clusterName = "cluster of 3 masters"

func nodesName(n int) string {
	return strings.TrimSuffix(fmt.Sprintf("%d nodes", n), map[bool]string{true: "s"}[n == 1])
}
