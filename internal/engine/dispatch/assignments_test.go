package dispatch

import (
	"testing"
	"testing/synctest"

	"github.com/fermata-io/fermata/internal/core/job"
)

// messagesOf is the number of messages that the worker was sent since the last call.
func messagesOf(out *fakeStream) int {
	out.mu.Lock()
	defer out.mu.Unlock()
	return len(out.messages)
}

// The leases of several calls of Deliver are one message for each worker.
func TestHeldAssignmentsAreOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, out := b.connect("w", 8, 1)
		_, other := b.connect("v", 8, 1)
		b.d.HoldAssignments()
		b.deliver("a", "b")
		b.deliver("c", "d")
		if n := b.d.FreeSlots("ns", "q"); n != 12 || b.d.FreeSlots("ns", "other") != 0 {
			t.Errorf("%d slots are free", n)
		}
		if messagesOf(out)+messagesOf(other) > 0 {
			t.Error("sent before the release")
		}
		b.d.HoldAssignments() // another call delivers as well
		b.d.ReleaseAssignments()
		if n, m := messagesOf(out), messagesOf(other); n != 1 || m != 1 {
			t.Errorf("sent %d and %d messages", n, m)
		}
		if n := len(out.took()) + len(other.took()); n != 4 {
			t.Errorf("sent %d leases", n)
		}
		b.d.ReleaseAssignments()
		b.deliver("e")
		if n := messagesOf(out) + messagesOf(other); n != 1 {
			t.Errorf("sent %d messages after the last release", n)
		}
		b.d.audit(t)
	})
}

// What is said about a held lease comes after it.
func TestHeldAssignmentsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 8, 1)
		running := b.deliver("first")
		out.took()
		b.d.HoldAssignments()
		b.deliver("a")
		s.HandleResults(ok(running[0]))
		b.wantSent(out, "ack first accepted") // which need not wait, nor has the lease to go with it
		record := job.Key{Namespace: "ns", ID: "a"}.Record()
		if !b.d.CancelAttempt(record, b.store.lease(record).rec.State.Token) {
			t.Error("the attempt is not here")
		}
		b.wantSent(out, "lease a", "cancel a requested")
		b.d.ReleaseAssignments()
		b.wantSent(out)
	})
}

// Leases that are held when the stream ends, or does not accept them, were never sent.
func TestHeldAssignmentsOfAnEndedStreamAreReturned(t *testing.T) {
	for name, end := range map[string]func(*bench, *Session, *fakeStream){
		"ends": func(b *bench, s *Session, _ *fakeStream) {
			s.Close("gone", nil)
			b.d.ReleaseAssignments()
		},
		"is full": func(b *bench, s *Session, out *fakeStream) {
			out.full = true
			b.d.ReleaseAssignments()
			if out.reason() == nil {
				b.t.Error("the stream goes on")
			}
			s.Close("too slow", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				s, out := b.connect("w", 8, 1)
				b.d.HoldAssignments()
				b.deliver("a", "b")
				end(b, s, out)
				b.wantSent(out)
				b.wantEvents("ReturnLease a", "ReturnLease b")
				b.d.audit(t)
			})
		})
	}
}
