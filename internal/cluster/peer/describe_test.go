package peer

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// largeWorkers are workers of one namespace with the most labels, and one worker of another namespace.
func largeWorkers(n int) (workers []job.WorkerInfo) {
	labels := map[string]string{}
	for i := range job.MaxWorkerLabels {
		labels[fmt.Sprint("label", i)] = strings.Repeat("x", 256)
	}
	for i := range n {
		workers = append(workers, job.WorkerInfo{ID: fmt.Sprint("w", i), Node: "b", Namespace: "a", Queues: []string{"q"},
			Slots: 2, Running: 1, Labels: labels})
	}
	return append(workers, job.WorkerInfo{ID: "other", Node: "b", Namespace: "b", Queues: []string{"q"}, Slots: 99,
		Labels: map[string]string{"zone": "west"}})
}

// TestNodeOfManyWorkersIsDescribed: whatever the labels of its workers take, a node is described to nodes of this build
// and of the previous one, with all workers and the sums of each queue.
func TestNodeOfManyWorkersIsDescribed(t *testing.T) {
	const many = 5000
	b := start(t, "b", "127.0.0.1:0", nil)
	b.workers = largeWorkers(many) // 42 MB
	a := start(t, "a", "127.0.0.1:0", nil)
	a.peer.SetView(sharding.NewView(1, "a", members(a, b)))
	b.hasMembers("a")
	a.waitFor("back b")
	sums := []job.QueueWorkers{{Namespace: "a", Queue: "q", Workers: many, FreeSlots: many},
		{Namespace: "b", Queue: "q", Workers: 1, FreeSlots: 99}}
	brief := a.peer.DescribeAll(t.Context())[0]
	if brief.Unreachable || brief.WorkerCount != many+1 || !reflect.DeepEqual(brief.QueueWorkers, sums) ||
		brief.ShardsHeld != 7 || len(brief.Workers) != 0 {
		t.Errorf("unreachable: %v, %d workers, sums %v, %d listed", brief.Unreachable, brief.WorkerCount,
			brief.QueueWorkers, len(brief.Workers))
	}
	whole := a.peer.DescribeAllWorkers(t.Context())[0]
	if len(whole.Workers) != many+1 || !reflect.DeepEqual(whole.QueueWorkers, sums) {
		t.Fatalf("%d workers are listed, want %d; sums %v", len(whole.Workers), many+1, whole.QueueWorkers)
	}
	if got := whole.Workers[many].Labels["zone"]; got != "west" {
		t.Errorf("the worker with few labels has lost them: %v", whole.Workers[many])
	}
	if n := testutil.ToFloat64(b.peer.metrics.cut.WithLabelValues("description")); n != 1 {
		t.Errorf("%v descriptions were cut, want 1", n)
	}
	old, err := (&peerService{p: b.peer}).DescribeNode(t.Context(), &fermatav1.DescribeNodeRequest{})
	if size := proto.Size(old); err != nil || size > maxSent || len(old.GetWorkers()) != many+1 {
		t.Errorf("the previous build gets %d bytes and %d workers, %v", size, len(old.GetWorkers()), err)
	}
}

// TestSumsOfThePreviousBuild: a node of the previous build sends all workers and no sums.
func TestSumsOfThePreviousBuild(t *testing.T) {
	answer := infoToPB(job.NodeInfo{Name: "b", WorkerCount: 2})
	answer.Workers = workersToPB([]job.WorkerInfo{
		{ID: "v", Namespace: "ns", Queues: []string{"p", "q"}, Slots: 5, Running: 2},
		{ID: "w", Namespace: "ns", Queues: []string{"q"}, Slots: 1, Draining: true},
	})
	want := []job.QueueWorkers{{Namespace: "ns", Queue: "p", Workers: 1, FreeSlots: 3},
		{Namespace: "ns", Queue: "q", Workers: 2, FreeSlots: 3}}
	if info := infoFromPB(answer); info.WorkerCount != 2 || !reflect.DeepEqual(info.QueueWorkers, want) {
		t.Errorf("%d workers, sums %v, want %v", info.WorkerCount, info.QueueWorkers, want)
	}
}

// TestListsOfWorkersFit, and leave those whole that take no more than an equal part.
func TestListsOfWorkersFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := func(label string, most int) string {
			return strings.Repeat("x", rapid.IntRange(0, most).Draw(t, label))
		}
		var workers, before []*fermatav1.Worker
		for i := range rapid.IntRange(0, 20).Draw(t, "workers") {
			w := &fermatav1.Worker{WorkerId: fmt.Sprint(i, word("id", 50)), Queues: []string{word("queue", 60)},
				Labels: map[string]string{"a": word("label", 200)}}
			workers, before = append(workers, w), append(before, proto.Clone(w).(*fermatav1.Worker))
		}
		limit := rapid.IntRange(-10, 3000).Draw(t, "limit")
		fitting, cut := fitWorkers(workers, limit)
		if size := proto.Size(&fermatav1.DescribeNodeResponse{Workers: fitting}); size > max(0, limit) {
			t.Fatalf("the list takes %d bytes, want at most %d", size, limit)
		}
		changed := 0
		for _, w := range before {
			i := 0
			for i < len(fitting) && !proto.Equal(fitting[i], w) {
				i++
			}
			if i < len(fitting) {
				continue
			}
			if changed++; entryBytes(w) <= limit/len(before) {
				t.Fatalf("a worker of %d bytes was cut: %d of %d", entryBytes(w), limit, len(before))
			}
		}
		if changed != cut {
			t.Fatalf("%d workers were cut, counted %d", changed, cut)
		}
	})
}
