// Package telemetry turns lifecycle notices into metrics and log lines, and serves
// /metrics, /healthz and /readyz.
//
// Notices ([job.Notice]) are the one source: engines emit them once per accepted
// decision, so that counters agree with what is stored. Labels are bounded:
// namespace, queue, outcome and trigger, never a job's id. Log lines carry ids and
// the run's correlation id, never payloads or outputs.
//
// No notice contains why a run waited before its lease. Nodes report which queues have
// workers and which are at a limit. The last such time of each queue is remembered until
// a run of it starts late.
//
// Events that need an operator's attention are logged as warnings (dead and quarantined
// runs, lost workers, refused stale results), changes of a schedule as info, events of
// every run as debug.
package telemetry
