package main

import (
	"time"

	"github.com/fermata-io/fermata/bench/internal/proc"
)

// meter measures a span of time: how long, and the processor time of each part.
type meter struct {
	start time.Time
	parts map[string][]*proc.Process
	base  map[string]time.Duration
}

// Parts of a bed, as the columns of tables name them.
const (
	partRedis     = "redis"
	partScheduler = "scheduler"
	partWorker    = "worker"
)

// meter starts measuring.
func (b *bed) meter() *meter {
	m := &meter{parts: map[string][]*proc.Process{partRedis: b.redisProcesses()}, base: map[string]time.Duration{}}
	if b.cluster != nil {
		m.parts[partScheduler] = b.cluster.Processes()
	}
	if b.worker != nil {
		m.parts[partWorker] = []*proc.Process{b.worker.Process}
	}
	for part := range m.parts {
		m.base[part] = m.used(part)
	}
	m.start = time.Now()
	return m
}

func (m *meter) used(part string) (d time.Duration) {
	for _, p := range m.parts[part] {
		d += p.CPU()
	}
	return d
}

// span is what a meter measured.
type span struct {
	took time.Duration
	cpu  map[string]time.Duration
}

// stop ends the measurement.
func (m *meter) stop() span {
	s := span{took: time.Since(m.start), cpu: map[string]time.Duration{}}
	for part := range m.parts {
		s.cpu[part] = m.used(part) - m.base[part]
	}
	return s
}

// perJob puts rate and CPU of n jobs into a sample.
func (s span) perJob(n int, into Sample) {
	into["rate"] = float64(n) / s.took.Seconds()
	for part, d := range s.cpu {
		into["cpu_"+part] = float64(d.Microseconds()) / float64(n)
	}
}

// share is the part's use of one core.
func (s span) share(part string) float64 { return s.cpu[part].Seconds() / s.took.Seconds() }
