package worker_test

import (
	"context"
	"strconv"
	"testing"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// BenchmarkNoop runs handlers that do nothing, 256 at once, over one stream.
func BenchmarkNoop(b *testing.B) {
	const slots = 256
	t := &testing.T{}
	n := &node{t: t, streams: make(chan *stream, 1)}
	n.listen("127.0.0.1:0")
	defer n.kill()
	w, err := worker.New(worker.Options{Addresses: []string{n.addr}, Slots: slots})
	if err != nil {
		b.Fatal(err)
	}
	w.Handle("noop", func(context.Context, *worker.Task) error { return nil })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	s := <-n.streams
	s.welcome(ttl)

	b.ReportAllocs()
	b.ResetTimer()
	sent, free := 0, slots
	for finished := 0; finished < b.N; {
		var leases []*fermatav1.Lease
		for ; free > 0 && sent < b.N; free-- {
			leases = append(leases, leaseOf(strconv.Itoa(sent), "noop"))
			sent++
		}
		if len(leases) > 0 {
			s.lease(leases...)
		}
		var acks []string
		for _, r := range (<-s.in).GetResults().GetResults() {
			acks = append(acks, r.LeaseId)
		}
		if len(acks) > 0 {
			s.ack(accepted, acks...)
		}
		finished += len(acks)
		free += len(acks)
	}
	b.StopTimer()
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
}
