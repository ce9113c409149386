package worker_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// Every slot runs its handler though all others block, also after a handler has
// taken its goroutine along, and no more goroutines come than there are slots.
func TestAllSlotsRunAtOnce(t *testing.T) {
	const slots, rounds = 50, 5
	n := newNode(t)
	var all sync.WaitGroup
	run(t, worker.Options{Addresses: []string{n.addr}, Slots: slots}, map[string]worker.Handler{
		"meet": func(context.Context, *worker.Task) error {
			all.Done()
			all.Wait()
			return nil
		},
		"exit": func(context.Context, *worker.Task) error {
			all.Done()
			all.Wait()
			runtime.Goexit()
			return nil
		},
	})
	s := n.accept(ttl)
	before := runtime.NumGoroutine()
	for round := range rounds {
		all.Add(slots)
		for i := range slots {
			name := "meet"
			if i%7 == 0 {
				name = "exit"
			}
			s.lease(leaseOf(strconv.Itoa(round*slots+i), name))
		}
		for ended := 0; ended < slots; {
			for _, r := range s.next().GetResults().GetResults() {
				s.ack(fermatav1.ResultAck_STATUS_ACCEPTED, r.GetLeaseId())
				ended++
			}
		}
		redistest.Eventually(t, patience, "runners are at most as many as slots",
			func() bool { return runtime.NumGoroutine() <= before+slots })
	}
}
