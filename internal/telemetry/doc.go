// Package telemetry turns lifecycle notices into metrics and log lines, and
// serves /metrics, /healthz and /readyz.
//
// Notices ([job.Notice]) are the one source: engines emit them once per accepted
// decision, so that counters agree with what is stored. Labels are bounded:
// namespace, queue, outcome and trigger, never a job's id. Log lines carry ids and
// the run's correlation id, never payloads or outputs.
//
// What a run waited for before its lease no notice tells. Nodes say which queues have
// workers and which are at a limit, and the last such time of each queue is remembered
// until a run of it starts late.
//
// What an operator would act on is logged as a warning (dead and quarantined
// runs, lost workers, refused stale results), what changes a schedule as info,
// what happens to every run as debug.
package telemetry
