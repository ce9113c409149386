// Package observability tests what people see of Fermata: metrics, dashboards, alerts
// and runbooks, on real parts. It starts Redis, three scheduler processes, a worker
// process and a Prometheus that scrapes them with the shipped rules, gives them work
// that fails, waits, is paused, locked, lost and cancelled, kills a node, and asks
// Prometheus every question that dashboards and rules ask. For pictures of the dashboards
// (make screens) it goes on for minutes, with more trouble, and has them drawn.
//
// Invariants:
//
//  1. docs/metrics.md and what is scraped agree, in both directions.
//  2. An expression that finds nothing is a fault of the expression, unless it is
//     listed with the reason.
//  3. Every alert has a case in which it fires, one in which it is silent, and a
//     section of docs/runbooks.md.
package observability
