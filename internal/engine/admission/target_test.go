package admission

import (
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const host = "target/ns/host"

func (b *bed) circuit() string {
	b.limits.mu.Lock()
	defer b.limits.mu.Unlock()
	return b.limits.cells[host]
}

// openUntil is how long the target is backing off.
func (b *bed) openFor() time.Duration {
	c := b.a.parseCircuit(host, b.circuit())
	return time.Until(c.OpenUntilMS.Time())
}

// A lock whose server does not answer delays no report to targets.
func TestReportsWaitForNoLocks(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k"), target("host")))
		b.deliver("ns/a")
		b.limits.set(func() { b.limits.hang["release"] = true })
		b.end("ns/a", failure)
		after(time.Second)
		if b.circuit() == "" {
			t.Error("the failure is not stored")
		}
		b.limits.set(func() { b.limits.hang["release"] = false })
		after(5 * time.Second)
		b.wantHolders("lock/ns/k")
	})
}

func TestTargetBacksOffAndIsProbed(t *testing.T) {
	run(t, func(b *bed) {
		for _, id := range []string{"a", "b", "c"} {
			b.put(recurring(id, target("host")))
		}
		b.deliver("ns/a")
		b.end("ns/a", failure)
		open := b.openFor()
		if open <= 0 {
			t.Fatalf("circuit %q after a failure", b.circuit())
		}
		b.deliver("ns/b", "ns/c")
		b.wantGot("ns/a")
		b.wantHeld("ns/b", job.HeldTarget, "host", "a")
		if d := dueIn(b.store.state("ns/b")); d > open || d < open-time.Millisecond {
			t.Errorf("due in %v, the target is open for %v", d, open)
		}

		after(open + time.Millisecond)
		b.deliver("ns/b", "ns/c")
		b.wantGot("ns/a", "ns/b")
		if d := dueIn(b.store.state("ns/c")); d <= 0 || d > pollMost {
			t.Errorf("beside a probe: due in %v", d)
		}
		after(3 * ttl) // the probe is kept while it lives
		b.deliver("ns/c")
		b.wantGot("ns/a", "ns/b")

		b.end("ns/b", success)
		if c := b.circuit(); c != "" {
			t.Errorf("circuit %q after the probe's success", c)
		}
		b.deliver("ns/c")
		b.wantGot("ns/a", "ns/b", "ns/c")
	})
}

func TestProbeWithoutVerdict(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", target("host")), recurring("b", target("host")))
		b.deliver("ns/a")
		b.end("ns/a", failure)
		after(b.openFor() + time.Millisecond)
		l := b.deliver("ns/b")[0]
		b.a.Ended(job.Ending{Record: "ns/b", Token: l.Known.State.Token, Over: true})
		after(time.Millisecond)
		if c := b.a.parseCircuit(host, b.circuit()); c.Probe != "" {
			t.Errorf("probe %q is dead and stands", c.Probe)
		}
	})
}

func TestRetryAfterIsTheTargets(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", target("host")))
		b.deliver("ns/a")
		b.end("ns/a", job.FinishAttempt{Outcome: job.OutcomeFailed, Error: "HTTP 429", RetryAfter: 7 * time.Minute})
		if open := b.openFor(); open < 7*time.Minute || open > 7*time.Minute+time.Millisecond {
			t.Errorf("open for %v", open)
		}
	})
}

// TestRetryAfterForATargetIsBounded: one answer to one job does not close a host to all jobs
// for a day, unless that job may rest so long itself.
func TestRetryAfterForATargetIsBounded(t *testing.T) {
	for want, most := range map[time.Duration]time.Duration{time.Hour: 0, 3 * time.Hour: 3 * time.Hour, 10 * time.Minute: 10 * time.Minute} {
		run(t, func(b *bed) {
			d := recurring("a", target("host"))
			d.Backoff.MaxDelay, d.MaxInterval = time.Hour, most
			d.Retry = backoff.DefaultRetry()
			b.put(d)
			b.deliver("ns/a")
			b.end("ns/a", job.FinishAttempt{Outcome: job.OutcomeFailed, Error: "HTTP 429", RetryAfter: 9_000_000_000 * time.Second})
			if open := b.openFor(); open < want || open > want+time.Millisecond {
				t.Errorf("with a max_interval of %v: open for %v, want %v", most, open, want)
			}
		})
	}
}

func TestClosedCircuitCostsFewCalls(t *testing.T) {
	run(t, func(b *bed) {
		var records []job.RecordID
		for i := range 10 {
			d := recurring(string(rune('a'+i)), target("host"))
			b.put(d)
			records = append(records, d.Record())
		}
		b.deliver(records[:5]...)
		b.deliver(records[5:]...)
		for _, r := range records {
			b.end(r, success)
		}
		if reads, swaps := b.limits.count("read"), b.limits.count("swap"); reads != 1 || swaps != 0 {
			t.Errorf("%d reads, %d swaps", reads, swaps)
		}
		after(closedForStart)
		b.put(recurring("z", target("host")))
		b.deliver("ns/z")
		if reads := b.limits.count("read"); reads != 2 {
			t.Errorf("%d reads", reads)
		}
	})
}

// A run that was to be the probe and cannot start leaves the place to another.
func TestProbeThatDoesNotStart(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", target("host")), recurring("b", target("host"), overlap(job.OverlapAllowAll)))
		b.deliver("ns/a")
		b.end("ns/a", failure)
		after(b.openFor() + time.Millisecond)
		b.store.set(func() { b.store.refuse["ns/b"] = errTest })
		b.deliver("ns/b")
		b.wantGot("ns/a")
		if c := b.a.parseCircuit(host, b.circuit()); c.Failures == 0 || c.Probe != "" {
			t.Errorf("circuit %+v", c)
		}
	})
}

// Two nodes find a circuit half open: one of them has the probe.
func TestSwapIsRepeated(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", target("host")), recurring("b", target("host")))
		b.deliver("ns/a")
		b.end("ns/a", failure)
		after(b.openFor() + time.Millisecond)
		b.limits.set(func() {
			b.limits.before = func() {
				c := b.a.parseCircuit(host, b.limits.cells[host])
				c, _ = c.Admit(unixtime.MilliOf(time.Now()), "9@ns/elsewhere", ttl)
				b.limits.cells[host] = c.Encode()
				b.limits.before = nil
			}
		})
		b.deliver("ns/b")
		b.wantGot("ns/a")
		if s := b.store.state("ns/b"); s.Held.Reason != job.HeldTarget {
			t.Errorf("held %+v", s.Held)
		}
		if c := b.a.parseCircuit(host, b.circuit()); c.Probe != "9@ns/elsewhere" {
			t.Errorf("probe %q", c.Probe)
		}
	})
}

func TestCircuitThatKeepsChanging(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", target("host")), recurring("b", target("host")))
		b.deliver("ns/a")
		b.end("ns/a", failure)
		after(b.openFor() + time.Millisecond)
		b.limits.set(func() {
			b.limits.before = func() {
				c := b.a.parseCircuit(host, b.limits.cells[host])
				c.Failures++
				b.limits.cells[host] = c.Encode()
			}
		})
		b.deliver("ns/b")
		after(ttl / 2)
		b.wantGot("ns/a")
		if got := b.slots.list(&b.slots.returned); !slices.Equal(got, []string{"ns/b"}) {
			t.Errorf("returned %q", got)
		}
	})
}
