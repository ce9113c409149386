package backoff

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// phase is what the model knows a circuit to be in.
type phase string

const (
	closed   phase = "closed"
	waiting  phase = "waiting" // open, or half open without a probe
	probing  phase = "probing" // one run finds out
	probeTTL       = 5 * time.Second
)

// model is a simple circuit breaker: one phase, and runs that remember their role from their start. It shares
// only the curve with Circuit.
type model struct {
	phase phase
	steps int            // failures that made the wait longer
	until unixtime.Milli // nothing starts before
	lives unixtime.Milli // the probe is believed to live until then
	probe string
}

func (m *model) start(now unixtime.Milli, run string) (ok, probe bool) {
	switch m.phase {
	case closed:
		return true, false
	case probing:
		if run == m.probe && now < m.lives {
			return true, true
		}
		if now < m.lives {
			return false, false
		}
	}
	if now < m.until {
		return false, false
	}
	m.phase, m.probe, m.lives = probing, run, now.Add(probeTTL)
	return true, true
}

func (m *model) end(now unixtime.Milli, run string, failed bool, retryAfter, wait time.Duration) {
	mine := m.phase == probing && run == m.probe
	switch {
	case !failed && mine:
		*m = model{phase: closed}
	case !failed:
	case m.phase == closed || mine:
		if retryAfter == 0 {
			retryAfter = wait
		}
		*m = model{phase: waiting, steps: m.steps + 1, until: max(m.until, now.Add(retryAfter))}
	case retryAfter > 0:
		m.until = max(m.until, now.Add(retryAfter))
	}
}

func (m *model) vanish(run string) {
	if m.phase == probing && run == m.probe {
		m.phase, m.probe = waiting, ""
	}
}

// TestCircuitAgainstModel lets many runs start, live, end and get lost in any
// order, and compares each step with the model. Beside it, it keeps the books on
// the promises themselves, from nothing but the verdicts.
func TestCircuitAgainstModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		policy := plainCircuit()
		policy.MaxDelay = 8 * time.Second
		m, c := model{phase: closed}, Circuit{}
		now, born := unixtime.Milli(1_000_000), 0
		var runs []string
		aliveUntil := map[string]unixtime.Milli{} // of the holders that became the probe
		pick := func() int { return rapid.IntRange(0, len(runs)-1).Draw(r, "run") }
		remove := func(i int) { runs = append(runs[:i:i], runs[i+1:]...) }
		for range rapid.IntRange(1, 120).Draw(r, "steps") {
			now += unixtime.Milli(rapid.SampledFrom([]int64{0, 1, 400, 2000, 4999, 5000, 9000}).Draw(r, "pass"))
			before := c
			act := rapid.SampledFrom([]string{"start", "start", "start", "again", "fail", "fail", "succeed", "vanish", "keep", "lose"}).Draw(r, "act")
			if act != "start" && len(runs) == 0 {
				continue
			}
			switch act {
			case "start", "again":
				run := fmt.Sprint("run", born)
				if act == "again" {
					run = runs[pick()]
				}
				next, v := c.Admit(now, run, probeTTL)
				ok, probe := m.start(now, run)
				if v.OK != ok || v.Probe != probe {
					r.Fatalf("%s: %+v, want %v %v", run, v, ok, probe)
				}
				if again, v2 := next.Admit(now, run, probeTTL); again != next || v2 != v {
					r.Fatalf("asked twice: %+v %+v, %+v %+v", next, v, again, v2)
				}
				if !v.OK && v.UntilMS <= now {
					r.Fatalf("held until %d, which is past", v.UntilMS)
				}
				if c = next; v.Probe {
					for other, until := range aliveUntil {
						if other != run && now < until {
							r.Fatalf("%s is a probe beside %s", run, other)
						}
					}
					aliveUntil[run] = c.ProbeUntilMS
				}
				if act == "start" && v.OK {
					runs, born = append(runs, run), born+1
				}
			case "fail":
				i := pick()
				retryAfter := rapid.SampledFrom([]time.Duration{0, 0, 0, time.Second, 30 * time.Second}).Draw(r, "retry after")
				c = c.Failed(now, runs[i], "job", "boom", retryAfter, policy, 0)
				m.end(now, runs[i], true, retryAfter, policy.Delay(m.steps+1, 0))
				if c.Open() && before.Open() && c.OpenUntilMS < before.OpenUntilMS || !c.Open() {
					r.Fatalf("a failure made the wait shorter: %+v to %+v", before, c)
				}
				delete(aliveUntil, runs[i])
				remove(i)
			case "succeed":
				i := pick()
				c = c.Succeeded(now, runs[i])
				m.end(now, runs[i], false, 0, 0)
				if _, wasProbe := aliveUntil[runs[i]]; before.Open() && !c.Open() && !wasProbe {
					r.Fatalf("%s closed it and was no probe", runs[i])
				}
				delete(aliveUntil, runs[i])
				remove(i)
			case "vanish":
				i := pick()
				c = c.ReleaseProbe(runs[i])
				m.vanish(runs[i])
				delete(aliveUntil, runs[i])
				remove(i)
			case "keep":
				run := runs[pick()]
				if c = c.RenewProbe(run, now, probeTTL); m.phase == probing && run == m.probe {
					m.lives = max(m.lives, now.Add(probeTTL))
					aliveUntil[run] = c.ProbeUntilMS
				}
			case "lose":
				remove(pick()) // its node dies: the circuit gets no result
			}
			compare(r, c, m)
		}
	})
}

// compare holds the circuit, and what comes back from its text, against the model.
func compare(r *rapid.T, c Circuit, m model) {
	if back, err := ParseCircuit(c.Encode()); err != nil || back != c {
		r.Fatalf("%+v came back as %+v, %v", c, back, err)
	}
	want := model{phase: closed}
	if c.Open() {
		want = model{phase: waiting, steps: int(c.Failures), until: c.OpenUntilMS}
	}
	if c.Open() && c.Probe != "" {
		want.phase, want.probe, want.lives = probing, c.Probe, c.ProbeUntilMS
	}
	if m.phase != probing {
		m.lives = 0
	}
	if want != m {
		r.Fatalf("circuit %+v, model %+v", c, m)
	}
}
