// Command bench measures Fermata beside hibiken/asynq and raw Redis in the same run.
//
//	go run . [scenario ...] [-rounds 3] [-quick] [-peers fermata,asynq,raw] [-json FILE] [-docs FILE]
//	go run . drain -peers fermata -jobs 200000 -slots 500 -rounds 1 -profile /tmp/profile
//
// A [Scenario] is a question; its [Case]s are a peer with a setting each, and a function
// that measures once and returns a [Sample]. The runner runs all cases of a scenario in
// turn, round by round, each time beginning with another one. Each scenario is a file,
// whose comment says precisely what is measured.
//
// What a case stands on:
//
//   - newBed (bed.go): a fresh redis-server, a cluster of Fermata, a worker process, all
//     of them closed by close; waitExecuted, waitSettled, verify.
//   - meter (meter.go): wall time and the processor time of each part.
//   - internal/proc: processes that die with the benchmark; CPU and RSS from /proc; what
//     others took of the machine.
//   - internal/redisd: a redis-server, INFO, commands that were called.
//   - internal/fermata: builds the scheduler, runs n nodes, registers jobs, reads
//     /metrics, counts what is open in Redis.
//   - internal/load: the process that runs the handlers, and the handle on it.
//   - internal/record: what handlers saw of each job: runs, start, due time.
//   - internal/asynqs, internal/rawredis: the peers. internal/storecycle: the product's
//     store alone. internal/stats: quantiles.
//
// A measurement whose jobs did not all run exactly as often as they should is void.
package main
