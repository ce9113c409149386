package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// heldStore is a store whose reads of jobs of some namespaces wait until they are released.
type heldStore struct {
	Store
	held    []string
	release chan struct{}
}

func (s *heldStore) hold(namespace string) {
	if slices.Contains(s.held, namespace) {
		<-s.release
	}
}

func (s *heldStore) Get(ctx context.Context, keys []job.Key) ([]*job.Record, error) {
	s.hold(keys[0].Namespace)
	return s.Store.Get(ctx, keys)
}

func (s *heldStore) ReadStates(ctx context.Context, entries []job.IndexEntry) ([]*job.State, error) {
	s.hold(entries[0].Record.Namespace())
	return s.Store.ReadStates(ctx, entries)
}

// TestNamespacesShareLookups: calls of one namespace that register existing jobs beyond a limit leave turns to another
// namespace, and each waits for a bounded time.
func TestNamespacesShareLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFake(t)
		demandsIn := func(namespace string) (demands []quotaDemand) {
			for i := range 2 {
				d := definition(fmt.Sprint("j", i))
				d.Namespace = namespace
				if _, err := r.Create(t.Context(), d, ""); err != nil && !errors.As(err, new(*job.QuotaError)) {
					t.Error(err)
				}
				demands = append(demands, quotaDemand{key: d.Key, quotaAmount: quotaAmount{1, 1}})
			}
			return demands
		}
		greedy, other := demandsIn("greedy"), demandsIn("other")
		store := &heldStore{Store: f, held: []string{"greedy"}, release: make(chan struct{})}
		r.o.Store, r.o.Quota = store, fullQuota{}
		const calls = 20
		began, faults := time.Now(), make(chan error, calls)
		for range calls {
			go func() {
				_, f := r.claimQuota(t.Context(), greedy)
				faults <- f[0]
			}()
		}
		synctest.Wait()
		if _, f := r.claimQuota(t.Context(), other); f[0] != nil || f[1] != nil {
			t.Errorf("another namespace: %v", f)
		}
		for range calls - 1 {
			var refused *job.TurnError
			if err := <-faults; !errors.As(err, &refused) || refused.Namespace != "greedy" {
				t.Errorf("%v, want a refusal", err)
			}
		}
		if waited := time.Since(began); waited != maxTurnWait {
			t.Errorf("calls waited %v, want %v", waited, maxTurnWait)
		}
		close(store.release)
		if err := <-faults; err != nil {
			t.Errorf("the call with the turn: %v", err)
		}
	})
}

// TestBatchesTakeTurnsToReadExistingJobs: a batch waits for the turn of its namespace before it reads jobs that exist, for
// a bounded time. A single job does not, and new jobs are registered.
func TestBatchesTakeTurnsToReadExistingJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := newFake(t)
		of := func(namespace string, ids ...string) (requests []job.CreateRequest) {
			for _, id := range ids {
				d := definition(id)
				d.Namespace = namespace
				requests = append(requests, job.CreateRequest{Definition: d})
			}
			return requests
		}
		for _, namespace := range []string{"greedy", "other"} {
			r.CreateBatch(t.Context(), of(namespace, "a", "b"))
		}
		end, err := r.lookups.begin(t.Context(), "greedy", takeTurnsAside(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		answers := r.CreateBatch(t.Context(), of("greedy", "a", "b", "c"))
		var refused *job.TurnError
		if !errors.As(answers[0].Err, &refused) || !errors.As(answers[1].Err, &refused) || answers[2].Err != nil {
			t.Errorf("%+v", answers)
		}
		if waited := time.Since(began); waited != maxTurnWait {
			t.Errorf("the batch waited %v, want %v", waited, maxTurnWait)
		}
		began = time.Now()
		for _, requests := range [][]job.CreateRequest{of("other", "a", "b"), of("greedy", "a"), of("greedy", "d", "e")} {
			for _, a := range r.CreateBatch(t.Context(), requests) {
				if a.Err != nil {
					t.Error(a.Err)
				}
			}
		}
		end()
		for _, a := range r.CreateBatch(t.Context(), of("greedy", "a", "b")) {
			if a.Err != nil {
				t.Error(a.Err)
			}
		}
		if held, waiting := r.lookups.InUse(); time.Since(began) > 0 || held+waiting > 0 {
			t.Errorf("calls waited %v, %d turns and %d waiting calls are left", time.Since(began), held, waiting)
		}
	})
}

// TestFullNodeRefusesLookups: if other namespaces have all turns of a node, the refusal names the node.
func TestFullNodeRefusesLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newLookupTurns()
		for i := range maxLookups {
			end, err := turns.begin(t.Context(), fmt.Sprint(i), takeTurnsAside(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			defer end()
		}
		var refused *job.TurnError
		_, err := turns.begin(t.Context(), "another", takeTurnsAside(t.Context()))
		if !errors.As(err, &refused) || *refused != (job.TurnError{Work: "lookups"}) {
			t.Errorf("%v", err)
		}
		if held, waiting := turns.InUse(); held != maxLookups || waiting != 0 {
			t.Errorf("%d turns and %d waiting calls are left", held, waiting)
		}
	})
}
