package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// benchBed is a node that holds 64 shards with 200 lanes each, all due: 20 queues
// of 10 priorities.
func benchBed(b *testing.B, slots Slots) *Scheduler {
	b.Helper()
	s, err := New(Options{
		Node: "a", Store: newFakeStore(), Ledger: &fakeLedger{}, Slots: slots, Peers: &fakePeers{},
		Held: func(int) (string, bool) { return "v", true },
	})
	if err != nil {
		b.Fatal(err)
	}
	s.timer = time.AfterFunc(time.Hour, func() {})
	b.Cleanup(func() { s.timer.Stop() })
	now := time.Now()
	s.scanCount = 1
	for id := range 64 {
		s.shards[id] = newShard(id, 0)
		s.learnHeads(1, id, benchHeads(unixtime.Milli(now.UnixMilli()-1000)), unixtime.MilliOf(now), now)
	}
	return s
}

func benchHeads(due unixtime.Milli) []job.LaneHead {
	var heads []job.LaneHead
	for q := range 20 {
		for p := range uint8(10) {
			heads = append(heads, job.LaneHead{Lane: laneOf(p, fmt.Sprintf("q%02d", q)), DueMS: due + unixtime.Milli(p)})
		}
	}
	return heads
}

type benchSlots struct{ n int }

func (f benchSlots) Prefetch(string, string, int) slots.Reservation { return nil }

func (f benchSlots) Reserve(string, string, int) slots.Reservation {
	if f.n == 0 {
		return nil
	}
	return f
}
func (f benchSlots) Count() int                     { return f.n }
func (f benchSlots) Split(int) slots.Reservation    { return nil }
func (f benchSlots) Advance() bool                  { return false }
func (f benchSlots) Queues() []job.QueueKey         { return nil }
func (f benchSlots) MayAdvance(string, string) bool { return false }
func (f benchSlots) FreeSlots(string, string) int   { return f.n }
func (f benchSlots) HoldAssignments()               {}
func (f benchSlots) ReleaseAssignments()            {}
func (f benchSlots) Deliver([]job.Leased)           {}

// A wake-up while there are no slots.
func BenchmarkPickWithoutSlots(b *testing.B) {
	s := benchBed(b, benchSlots{})
	for b.Loop() {
		s.pickCalls(time.Now())
	}
}

// A wake-up for possibly free slots, of which there are none: each queue is tried.
func BenchmarkPickDemandWithoutSlots(b *testing.B) {
	s := benchBed(b, benchSlots{})
	for b.Loop() {
		s.backlog.allSlotsAvailable()
		s.pickCalls(time.Now())
	}
}

// A round of calls with their answers, of a backlog that does not end.
func BenchmarkPickWithSlots(b *testing.B) {
	s := benchBed(b, benchSlots{1})
	leases := 0
	for b.Loop() {
		calls, _ := s.pickCalls(time.Now())
		now := time.Now()
		for _, c := range calls {
			r := job.LeaseReply{NowUS: unixtime.MicroOf(now)}
			got := make([]int, len(c.lanes))
			for i, l := range c.lanes {
				got[i] = 1
				r.Heads = append(r.Heads, job.LaneHead{Lane: l.key, DueMS: l.due})
			}
			r.Leased = make([]job.Leased, len(c.lanes))
			leases += len(c.lanes)
			s.finishCall(c, r, got, now)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(leases), "ns/lane")
}

// A rescan of one shard that brings nothing new.
func BenchmarkLearnHeads(b *testing.B) {
	s := benchBed(b, benchSlots{})
	now := time.Now()
	heads := benchHeads(unixtime.Milli(now.UnixMilli() - 1000))
	for b.Loop() {
		s.scanCount++
		s.learnHeads(s.scanCount, 3, heads, unixtime.MilliOf(now), now)
		s.endPage(s.scanCount, s.shards[3], job.LaneCursor{}, job.LanePage{Heads: heads})
	}
}
