// Package observability tests what people see of Fermata: metrics, dashboards, alerts
// and runbooks, on real parts. It starts Redis, three scheduler processes, two worker
// processes and three Prometheus servers that scrape them with the shipped rules: one stores
// classic histograms, one native histograms, one both. It gives the cluster work that fails,
// waits, starts late, is paused, locked, lost and cancelled, kills a node, and asks each
// server every question that dashboards and rules ask.
//
// Invariants:
//
//  1. docs/metrics.md and what is scraped agree, in both directions.
//  2. An expression that finds nothing is a fault of the expression, unless it is
//     listed with the reason. That holds for each server.
//  3. Every alert has a case in which it fires, one in which it is silent, and a
//     section of docs/runbooks.md.
package observability
