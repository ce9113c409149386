package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/engine/audittrail"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// slowTrail is a store of audit records that answers each call, after a while.
type slowTrail struct {
	audittrail.Store // whose other methods are not called
	delay            time.Duration

	mu      sync.Mutex
	records []job.TrailRecord
	head    job.TrailHead
}

func (s *slowTrail) TrailState(context.Context) (job.TrailState, error) {
	time.Sleep(s.delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	state := job.TrailState{Head: s.head, NowMS: unixtime.MilliOf(time.Now())}
	if n := len(s.records); n > 0 {
		state.OldestID, state.OldestSeq, state.Newest = s.records[0].ID, 1, s.records[n-1]
	}
	return state, nil
}

func (s *slowTrail) AppendTrail(_ context.Context, head job.TrailHead, records []job.TrailRecord, _ job.TrailTrim) (bool, error) {
	time.Sleep(s.delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	if head.Raw != s.head.Raw {
		return false, nil
	}
	last := records[len(records)-1]
	s.records = append(s.records, records...)
	s.head = job.TrailHead{Seq: last.Seq, Hash: last.Hash, Raw: fmt.Sprint(last.Seq)}
	return true, nil
}

// subjectKey has the identity of a caller in tests.
type subjectKey struct{}

// TestChangesOfOthersLoseNoRecord: one identity makes many changes at once, more than can be recorded in that time,
// and another makes a few. Each change that succeeds has one record, and those of the other one succeed.
func TestChangesOfOthersLoseNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, registry := &slowTrail{delay: 20 * time.Millisecond}, prometheus.NewRegistry()
		trail, err := audittrail.New(audittrail.Options{Store: store, Registerer: registry})
		if err != nil {
			t.Fatal(err)
		}
		a := &auditInterceptor{trail: trail, jobs: presentJobs{}, logger: slog.New(slog.DiscardHandler),
			subject: func(ctx context.Context) string { return ctx.Value(subjectKey{}).(string) }}
		var mu sync.Mutex
		succeeded, refused := map[string]int{}, map[string]int{} // by request id, by identity
		pause := func(subject, id string) {
			ctx := context.WithValue(t.Context(), subjectKey{}, subject)
			q := &fermatav1.UpdateQueueSettingsRequest{Settings: &fermatav1.QueueSettings{Name: "namespaces/n/queues/" + id}}
			info := &grpc.UnaryServerInfo{FullMethod: fermatav1.JobService_UpdateQueueSettings_FullMethodName}
			_, err := a.interceptUnary(ctx, q, info, func(ctx context.Context, _ any) (any, error) {
				BeginWrite(ctx)
				time.Sleep(20 * time.Millisecond)
				return q.Settings, nil
			})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				refused[subject]++
				return
			}
			succeeded[q.Settings.Name]++
		}
		var calling sync.WaitGroup
		end := time.Now().Add(3 * time.Second)
		for caller := range 1500 {
			calling.Go(func() {
				for i := 0; time.Now().Before(end); i++ {
					pause("many", fmt.Sprintf("many-%d-%d", caller, i))
				}
			})
		}
		calling.Go(func() {
			for i := range 100 {
				pause("few", fmt.Sprintf("few-%d", i))
			}
		})
		calling.Wait()
		trail.Stop(t.Context())

		recorded, check := map[string]int{}, job.ChainCheck{}
		for _, r := range store.records {
			recorded[r.Resource]++
			if b := check.Next(r); b != nil {
				t.Errorf("the chain breaks: %+v", b)
			}
		}
		var missing, wrong []string
		for name := range succeeded {
			if recorded[name] == 0 {
				missing = append(missing, name)
			} else if recorded[name] > 1 {
				wrong = append(wrong, name)
			}
		}
		few := func(names []string) []string { slices.Sort(names); return names[:min(len(names), 5)] }
		if len(missing) > 0 || len(wrong) > 0 || len(recorded) != len(succeeded) {
			t.Errorf("of %d changes %d have no record (%q), %d several (%q); %d records are of others", len(succeeded),
				len(missing), few(missing), len(wrong), few(wrong), len(recorded)-len(succeeded)+len(missing))
		}
		if refused["few"] > 0 || refused["many"] > 0 || len(succeeded) < 10_000 {
			t.Errorf("%d changes, refused are %v", len(succeeded), refused)
		}
		if lost := metricValue(t, registry, "fermata_audit_lost_total"); lost != 0 {
			t.Errorf("%v records are lost", lost)
		}
	})
}

// metricValue is the value of a counter without labels.
func metricValue(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
