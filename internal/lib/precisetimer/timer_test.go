package precisetimer_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/lib/precisetimer"
)

// The last test has alarms be timers of the runtime, so the others come before it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noted is an alarm that sends the time at which it rang.
func noted() (*precisetimer.Timer, <-chan time.Time) {
	rang := make(chan time.Time, 16)
	return precisetimer.New(func() { rang <- time.Now() }), rang
}

func TestTimerExpiresAtItsTime(t *testing.T) {
	a, rang := noted()
	defer a.Close()
	for _, in := range []time.Duration{3 * time.Millisecond, 100 * time.Microsecond, 0, -time.Hour} {
		at := time.Now().Add(in)
		a.Set(at)
		if got := <-rang; got.Before(at) {
			t.Errorf("set to %v ahead it rang %v too early", in, at.Sub(got))
		}
	}
}

func TestTimerIsReset(t *testing.T) {
	a, rang := noted()
	defer a.Close()
	a.Set(time.Now().Add(time.Hour))
	at := time.Now().Add(2 * time.Millisecond)
	a.Set(at)
	<-rang
	a.Set(time.Now().Add(time.Millisecond))
	at = time.Now().Add(30 * time.Millisecond)
	a.Set(at)
	for {
		// One that was set to the instant before may have been under way.
		if got := <-rang; !got.Before(at) {
			break
		}
	}
}

// A call that is being made has returned when the alarm is closed; that none is made after
// that the check for goroutines that are left shows.
func TestClosedTimerDoesNotExpire(t *testing.T) {
	entered, leave, inside := make(chan struct{}, 2), make(chan struct{}), false
	a := precisetimer.New(func() {
		inside = true
		entered <- struct{}{}
		<-leave
		inside = false
	})
	a.Set(time.Now())
	<-entered
	a.Set(time.Now()) // rings once more if the call returns before Close has begun
	go close(leave)
	a.Close()
	if inside {
		t.Error("the call goes on")
	}
}

// BenchmarkLateness measures how late alarms ring, compared with timers of the runtime.
func BenchmarkLateness(b *testing.B) {
	a, rang := noted()
	defer a.Close()
	fired := make(chan time.Time, 1)
	timer := time.AfterFunc(time.Hour, func() { fired <- time.Now() })
	defer timer.Stop()
	for name, at := range map[string]func(t time.Time) time.Time{
		"alarm": func(t time.Time) time.Time { a.Set(t); return <-rang },
		"timer": func(t time.Time) time.Time { timer.Reset(time.Until(t)); return <-fired },
	} {
		b.Run(name, func(b *testing.B) {
			var late []time.Duration
			for i := 0; b.Loop(); i++ {
				due := time.Now().Add(time.Duration(500+i*37%3000) * time.Microsecond)
				late = append(late, at(due).Sub(due))
			}
			slices.Sort(late)
			b.ReportMetric(float64(late[len(late)/2].Microseconds()), "us-late-p50")
			b.ReportMetric(float64(late[len(late)*99/100].Microseconds()), "us-late-p99")
		})
	}
}

func TestRuntimeTimerFollowsTheTimeOfABubble(t *testing.T) {
	precisetimer.UseRuntime()
	synctest.Test(t, func(t *testing.T) {
		a, rang := noted()
		at := time.Now().Add(time.Hour)
		a.Set(time.Now().Add(2 * time.Hour))
		a.Set(at)
		if got := <-rang; !got.Equal(at) {
			t.Errorf("it rang %v late", got.Sub(at))
		}
		a.Set(time.Now().Add(time.Hour))
		a.Close()
		time.Sleep(2 * time.Hour)
		if len(rang) > 0 {
			t.Error("it rang when it was closed")
		}
	})
}
