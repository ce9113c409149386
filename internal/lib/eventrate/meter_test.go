package eventrate_test

import (
	"math"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/lib/eventrate"
)

func TestRate(t *testing.T) {
	var m eventrate.Meter
	now := time.Unix(1000, 0)
	countFor := func(d, interval time.Duration, events int) {
		for end := now.Add(d); now.Before(end); {
			now = now.Add(interval)
			m.Count(events, now)
		}
	}
	check := func(want float64) {
		t.Helper()
		if got := m.PerSecond(); math.Abs(got-want) > want/10 {
			t.Errorf("%.0f a second, want %.0f", got, want)
		}
	}
	check(0)
	m.Count(1000, now)
	check(0) // no time has passed yet
	countFor(time.Second, time.Millisecond, 1)
	check(1000)
	countFor(time.Second, 10*time.Millisecond, 2)
	check(200)
	countFor(time.Second, time.Millisecond, 2)
	check(2000)
	now = now.Add(time.Minute) // nothing happens
	m.Count(1, now)
	if m.PerSecond() > 10 {
		t.Errorf("%.0f a second after a pause", m.PerSecond())
	}
}
