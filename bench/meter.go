package main

import (
	"runtime"
	"time"

	"github.com/fermata-io/fermata/bench/internal/proc"
)

// meter measures a span of time: how long, the processor time of each part, and that of processes which do not belong
// to the benchmark.
type meter struct {
	start     time.Time
	parts     map[string][]*proc.Process
	base      map[string]time.Duration
	processes []*proc.Process // all of the bed
	own       time.Duration   // used by this process so far
	foreign   time.Duration   // used by others so far
}

// Parts of a bed, as the columns of tables name them.
const (
	partRedis     = "redis"
	partScheduler = "scheduler"
	partWorker    = "worker"
)

// meter starts measuring.
func (b *bed) meter() *meter {
	m := &meter{
		parts: map[string][]*proc.Process{partRedis: b.redisProcesses()}, base: map[string]time.Duration{},
		processes: b.processes(),
	}
	if b.cluster != nil {
		m.parts[partScheduler] = b.cluster.Processes()
	}
	if b.worker != nil {
		m.parts[partWorker] = []*proc.Process{b.worker.Process}
	}
	for part := range m.parts {
		m.base[part] = cpuOf(m.parts[part])
	}
	m.own, m.foreign = proc.Own(), m.usedByOthers()
	m.start = time.Now()
	return m
}

func cpuOf(processes []*proc.Process) (d time.Duration) {
	for _, p := range processes {
		d += p.CPU()
	}
	return d
}

// usedByOthers is what the machine has used, less what this process, its ended children and the bed have used.
func (m *meter) usedByOthers() time.Duration { return proc.Busy() - proc.Own() - cpuOf(m.processes) }

// span is what a meter measured.
type span struct {
	took   time.Duration
	cpu    map[string]time.Duration
	client time.Duration // of this process, which registers jobs
	others time.Duration
}

// stop ends the measurement.
func (m *meter) stop() span {
	s := span{
		took: time.Since(m.start), cpu: map[string]time.Duration{}, client: proc.Own() - m.own,
		others: max(0, m.usedByOthers()-m.foreign),
	}
	for part := range m.parts {
		s.cpu[part] = cpuOf(m.parts[part]) - m.base[part]
	}
	return s
}

// plus is both spans together.
func (s span) plus(o span) span {
	sum := span{took: s.took + o.took, cpu: map[string]time.Duration{}, others: s.others + o.others}
	for part := range s.cpu {
		sum.cpu[part] = s.cpu[part] + o.cpu[part]
	}
	return sum
}

// total is the processor time of all parts.
func (s span) total() (d time.Duration) {
	for _, part := range s.cpu {
		d += part
	}
	return d
}

// perJob puts rate and CPU of n jobs into a sample.
func (s span) perJob(n int, into Sample) {
	into["rate"] = float64(n) / s.took.Seconds()
	for part, d := range s.cpu {
		into["cpu_"+part] = float64(d.Microseconds()) / float64(n)
	}
	into["cpu_total"] = float64(s.total().Microseconds()) / float64(n)
	into[others.Key] = s.shareOfOthers()
}

// withClient adds the processor time of this process, of n jobs that it registered.
func (s span) withClient(n int, into Sample) {
	client := float64(s.client.Microseconds()) / float64(n)
	into["cpu_client"], into["cpu_total"] = client, into["cpu_total"]+client
}

// minShareSpan is how long a span has to be for the share of others: processor time is counted in steps of 10 ms.
const minShareSpan = 500 * time.Millisecond

// shareOfOthers is what others took of the machine in percent; 0 of a span that is too short to tell.
func (s span) shareOfOthers() float64 {
	if s.took < minShareSpan {
		return 0
	}
	return 100 * s.others.Seconds() / s.took.Seconds() / float64(runtime.NumCPU())
}

// share is the part's use of one core.
func (s span) share(part string) float64 { return s.cpu[part].Seconds() / s.took.Seconds() }
