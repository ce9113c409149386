package node_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// A worker that says that it waits has leases before they are due, with the time that is
// left; one that does not say so has none early. Redis, node and workers share a clock here.
func TestLeasesComeInAdvance(t *testing.T) {
	redis := redistest.Start(t)
	n := start(t, redis.URL(), "a")
	const each = 20
	streams := map[string]fermatav1.WorkerService_WorkClient{}
	for _, queue := range []string{"waits", "plain"} {
		hello := &fermatav1.Hello{WorkerId: queue, Queues: []string{queue}, Slots: 4 * each, SessionEpoch: 1,
			SupportsStartAfter: queue == "waits"}
		streams[queue] = welcomed(t.Context(), t, n, hello)
	}
	c := jobs(t, n)
	first := time.Now().Add(2 * time.Second)
	for i := range each {
		due := first.Add(time.Duration(i) * 20 * time.Millisecond)
		for queue := range streams {
			create(t, c, fmt.Sprint(queue, i), &fermatav1.Job{
				Handler: "none", Queue: queue,
				Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(due)}},
			})
		}
	}
	type arrival struct {
		queue string
		at    time.Time
		lease *fermatav1.Lease
	}
	arrivals := make(chan arrival, 2*each)
	for queue, s := range streams {
		go func() {
			for {
				m, err := s.Recv()
				if err != nil {
					return // the test has ended, or waits in vain
				}
				for _, l := range m.GetLeases().GetLeases() {
					arrivals <- arrival{queue, time.Now(), l}
				}
			}
		}()
	}
	early := map[string]int{}
	for range 2 * each {
		a := next(t, arrivals)
		after := a.lease.GetStartAfter().AsDuration()
		if after > 0 {
			early[a.queue]++
		}
		due := a.lease.GetDueTime().AsTime()
		if begins := a.at.Add(after); begins.Before(due) || after > job.MaxAdvance {
			t.Errorf("%s begins %v before it is due, %v after it came", a.lease.GetRun(), due.Sub(begins), after)
		}
	}
	if early["waits"] == 0 || early["plain"] > 0 {
		t.Errorf("in advance came %v", early)
	}
}
