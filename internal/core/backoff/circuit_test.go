package backoff

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func plainCircuit() Retry {
	r := DefaultCircuit()
	r.Jitter = Jitter{Kind: JitterNone}
	return r
}

func TestCircuitOpensProbesAndCloses(t *testing.T) {
	policy := plainCircuit()
	var c Circuit
	now := unixtime.Milli(1_000_000)
	for wait := time.Second; wait <= 512*time.Second; wait *= 2 {
		if wait > time.Second {
			// The probe of the step before failed.
			next, v := c.Admit(now, "probe", 30*time.Second)
			if !v.OK || !v.Probe {
				t.Fatalf("at the end of the wait: %+v", v)
			}
			c = next
		}
		c = c.Failed(now, "probe", "ns/a", "HTTP 503", 0, policy, 0)
		want := now.Add(min(wait, 5*time.Minute))
		if c.OpenUntilMS != want {
			t.Fatalf("failure %d: open until %d, want %d", c.Failures, int64(c.OpenUntilMS-now), int64(want-now))
		}
		if _, v := c.Admit(want-1, "x", time.Minute); v.OK || v.UntilMS != want {
			t.Fatalf("while open: %+v", v)
		}
		now = want
	}
	c, v := c.Admit(now, "x", 30*time.Second)
	if !v.Probe {
		t.Fatal("no probe")
	}
	if _, v := c.Admit(now+1, "y", 30*time.Second); v.OK || v.UntilMS != now+30_000 {
		t.Fatalf("beside the probe: %+v", v)
	}
	if got := c.Succeeded(now+2, "y"); got != c {
		t.Fatalf("a success from before closed the circuit: %+v", got)
	}
	if got := c.Succeeded(now+2, "x"); got != (Circuit{}) || got.Encode() != "" {
		t.Fatalf("after the probe's success: %+v", got)
	}
}

func TestCircuitAndRetryAfter(t *testing.T) {
	policy := plainCircuit()
	c := Circuit{}.Failed(0, "a", "ns/a", "429", 2*time.Minute, policy, 0)
	if c.OpenUntilMS != 120_000 {
		t.Fatalf("open until %d", c.OpenUntilMS)
	}
	// What began before it opened counts only with a RetryAfter of its own, and the
	// longer wait holds.
	if got := c.Failed(10, "b", "ns/b", "500", 0, policy, 0); got != c {
		t.Errorf("a failure from before counted: %+v", got)
	}
	if got := c.Failed(10, "b", "ns/b", "429", time.Second, policy, 0); got.OpenUntilMS != 120_000 || got.Failures != 1 {
		t.Errorf("a shorter RetryAfter: %+v", got)
	}
	if got := c.Failed(0, "b", "ns/b", "429", 48*time.Hour, policy, 0); got.OpenUntilMS != unixtime.Milli(MaxRetryAfter.Milliseconds()) || got.Failures != 1 {
		t.Errorf("a long RetryAfter: %+v", got)
	}
}

func TestCircuitReplacesALostProbe(t *testing.T) {
	c := Circuit{}.Failed(0, "a", "ns/a", "boom", 0, plainCircuit(), 0)
	c, _ = c.Admit(1000, "p", 10*time.Second)
	c = c.RenewProbe("p", 5000, 10*time.Second)
	if _, v := c.Admit(14_999, "q", time.Second); v.OK {
		t.Error("a second probe beside one that is alive")
	}
	if _, v := c.Admit(15_000, "q", time.Second); !v.Probe {
		t.Error("a lost probe is not replaced")
	}
	if _, v := c.ReleaseProbe("p").Admit(6000, "q", time.Second); !v.Probe {
		t.Error("a probe that ended without a verdict is not replaced")
	}
	if got := c.ReleaseProbe("q"); got != c {
		t.Error("somebody else dropped the probe")
	}
}

// Steps of one circuit, with the waits of plainCircuit: 1 s, 2 s, 4 s.
func TestCircuitSteps(t *testing.T) {
	const ttl = 10 * time.Second
	policy := plainCircuit()
	open := Circuit{}.Failed(0, "a", "job", "boom", 0, policy, 0)
	probed, _ := open.Admit(1000, "p", ttl)
	for name, c := range map[string]struct{ got, want Circuit }{
		"opened": {open, Circuit{Failures: 1, OpenUntilMS: 1000, FailedJob: "job", Error: "boom"}},
		"probed": {probed, Circuit{Failures: 1, OpenUntilMS: 1000, Probe: "p", ProbeUntilMS: 11_000, FailedJob: "job", Error: "boom"}},
		"the probe fails": {probed.Failed(2000, "p", "other", "bang", 0, policy, 0),
			Circuit{Failures: 2, OpenUntilMS: 4000, FailedJob: "other", Error: "bang"}},
		"the probe fails and asks": {probed.Failed(2000, "p", "other", "bang", 500*time.Millisecond, policy, 0),
			Circuit{Failures: 2, OpenUntilMS: 2500, FailedJob: "other", Error: "bang"}},
		"a late probe fails": {probed.Failed(60_000, "p", "other", "bang", 0, policy, 0),
			Circuit{Failures: 2, OpenUntilMS: 62_000, FailedJob: "other", Error: "bang"}},
		"a late probe succeeds": {probed.Succeeded(60_000, "p"), Circuit{}},
		"another one asks beside the probe": {probed.Failed(2000, "q", "other", "429", 3*time.Second, policy, 0),
			Circuit{Failures: 1, OpenUntilMS: 5000, Probe: "p", ProbeUntilMS: 11_000, FailedJob: "other", Error: "429"}},
		"another one asks for less":       {open.Failed(10, "q", "other", "429", 900*time.Millisecond, policy, 0), open},
		"another one fails":               {probed.Failed(2000, "q", "other", "bang", 0, policy, 0), probed},
		"another one succeeds":            {probed.Succeeded(2000, "q"), probed},
		"no wait at all":                  {Circuit{}.Failed(7, "a", "job", "boom", 0, Retry{}, 0), Circuit{Failures: 1, SinceMS: 7, OpenUntilMS: 7, FailedJob: "job", Error: "boom"}},
		"part of a millisecond":           {Circuit{}.Failed(7, "a", "", "", 1, Retry{}, 0), Circuit{Failures: 1, SinceMS: 7, OpenUntilMS: 8}},
		"a RetryAfter below zero is none": {Circuit{}.Failed(0, "a", "job", "boom", -time.Hour, policy, 0), open},
		"a closed one forgets the past":   {Circuit{OpenUntilMS: 99_000, Probe: "z"}.Failed(0, "a", "job", "boom", 0, policy, 0), open},
		"a success at a closed one":       {Circuit{}.Succeeded(5, "a"), Circuit{}},
		"kept by nobody":                  {open.RenewProbe("", 5, ttl), open},
		"kept by another":                 {probed.RenewProbe("q", 9000, ttl), probed},
		"kept for less":                   {probed.RenewProbe("p", 1001, time.Millisecond), probed},
		"kept at a closed one":            {Circuit{}.RenewProbe("p", 5, ttl), Circuit{}},
		"dropped":                         {probed.ReleaseProbe("p"), open},
		"dropped by another":              {probed.ReleaseProbe("q"), probed},
		"the wait is ended": {open.EndWait(400),
			Circuit{Failures: 1, OpenUntilMS: 400, FailedJob: "job", Error: "boom"}},
		"a wait that is over stays so": {open.EndWait(2000), open},
		"a probe is awaited":           {probed.EndWait(500), probed},
		"a probe is awaited no more":   {probed.EndWait(11_000), probed},
		"no wait to end":               {Circuit{}.EndWait(500), Circuit{}},
		"a nameless success":           {open.Succeeded(5, ""), open},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
}

// A hundred runs that were under way when the target broke are one failure.
func TestCircuitCountsConcurrentFailuresOnce(t *testing.T) {
	var c Circuit
	for i := range 100 {
		c = c.Failed(unixtime.Milli(i), fmt.Sprint("h", i), "job", "boom", 0, plainCircuit(), 0)
	}
	if c.Failures != 1 || c.OpenUntilMS != 1000 {
		t.Errorf("%+v", c)
	}
}

// However large its arguments, every instant stays within what can be stored.
func TestCircuitSaturates(t *testing.T) {
	for _, now := range []int64{math.MinInt64, -1, 0, maxInstant - 1, maxInstant, math.MaxInt64} {
		for _, d := range []time.Duration{math.MinInt64, 0, 1, math.MaxInt64} {
			c := Circuit{Failures: maxInstant}
			c, _ = c.Admit(unixtime.Milli(now), "p", d)
			c = c.RenewProbe("p", unixtime.Milli(now), d).Failed(unixtime.Milli(now), "p", "job", "boom", d, Retry{Base: max(d, 0)}, 1)
			c, _ = c.Admit(unixtime.Milli(now), "p", d)
			if back, err := ParseCircuit(c.Encode()); err != nil || back != c {
				t.Errorf("now %d, %v: %+v came back as %+v, %v", now, d, c, back, err)
			}
			c = Circuit{}.Failed(unixtime.Milli(now), "p", "job", "boom", d, Retry{Base: max(d, 0)}, 1)
			if c.OpenUntilMS < unixtime.Milli(max(now, 0)) && c.OpenUntilMS != maxInstant || c.SinceMS < 0 {
				t.Errorf("now %d, %v: %+v", now, d, c)
			}
		}
	}
}

func TestCircuitTextIsBounded(t *testing.T) {
	for name, c := range map[string]struct{ by, reason, wantBy, wantReason string }{
		"short":        {"job", "boom", "job", "boom"},
		"just":         {strings.Repeat("j", 128), strings.Repeat("e", 256), strings.Repeat("j", 128), strings.Repeat("e", 256)},
		"long":         {strings.Repeat("j", 129), strings.Repeat("e", 257), strings.Repeat("j", 128), strings.Repeat("e", 256)},
		"inside runes": {strings.Repeat("€", 50), "e" + strings.Repeat("ü", 200), strings.Repeat("€", 42), "e" + strings.Repeat("ü", 127)},
		"no text":      {"\xff\xfe", "e\xff", "\uFFFD", "e\uFFFD"},
	} {
		got := Circuit{}.Failed(1, "h", c.by, c.reason, 0, DefaultCircuit(), 1)
		if got.FailedJob != c.wantBy || got.Error != c.wantReason {
			t.Errorf("%s: kept %q %q", name, got.FailedJob, got.Error)
		}
	}
	worst := Circuit{
		Failures: maxInstant, SinceMS: maxInstant, OpenUntilMS: maxInstant, ProbeUntilMS: maxInstant,
		Probe: strings.Repeat("\x01", 500),
	}.withFailure(strings.Repeat("\x01", 500), strings.Repeat("<", 500))
	text := worst.Encode()
	if back, err := ParseCircuit(text); err != nil || back != worst || len(text) > 3<<10+6*500 {
		t.Errorf("%d bytes: %v", len(text), err)
	}
}

func TestParseCircuit(t *testing.T) {
	for text, want := range map[string]Circuit{
		"":                        {},
		"{}":                      {},
		`{"u":5,"p":"x","e":"!"}`: {}, // closed: nothing to remember
		`{"n":1,"u":5,"q":9}`:     {Failures: 1, OpenUntilMS: 5},
		`{"n":1,"u":5,"new":{}}`:  {Failures: 1, OpenUntilMS: 5},
		`{"n":2,"s":3,"u":5,"p":"x","q":9,"b":"job","e":"HTTP 503"}`: {
			Failures: 2, SinceMS: 3, OpenUntilMS: 5, Probe: "x", ProbeUntilMS: 9, FailedJob: "job", Error: "HTTP 503"},
	} {
		if got, err := ParseCircuit(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, bad := range []string{
		"{", "[]", `"x"`, "{} {}", `{"n":1.5}`, `{"n":-1}`, `{"n":1,"s":-1}`, `{"n":1,"q":-1}`, `{"u":9007199254740993}`,
		`{"n":1e300}`, `{"e":"` + strings.Repeat("x", 9000) + `"}`,
	} {
		if _, err := ParseCircuit(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func FuzzParseCircuit(f *testing.F) {
	f.Add("")
	f.Add(`{"n":3,"s":1,"u":2,"p":"x","q":9,"b":"ns/a","e":"boom"}`)
	f.Add(`{"n":1,"u":4503599627370496,"p":"\u0000","q":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCircuit(text)
		if err != nil {
			return
		}
		if back, err := ParseCircuit(c.Encode()); err != nil || back != c {
			t.Fatalf("%+v came back as %+v, %v", c, back, err)
		}
		if len(c.FailedJob) > maxCircuitBy || len(c.Error) > maxCircuitError {
			t.Fatalf("%+v is too long", c)
		}
		next, v := c.Admit(1<<52, "h", time.Hour)
		if !v.OK {
			t.Fatalf("held at the end of time, until %d", v.UntilMS)
		}
		c = next.Failed(1<<52, "h", "b", "e", time.Hour, DefaultCircuit(), 7)
		if back, err := ParseCircuit(c.Encode()); err != nil || back != c {
			t.Fatalf("%+v came back as %+v, %v", c, back, err)
		}
	})
}
