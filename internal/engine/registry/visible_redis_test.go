package registry_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/registry"
)

// noWalk counts the walks over all jobs of the store.
type noWalk struct {
	registry.Store
	walks int
}

func (n *noWalk) List(ctx context.Context, namespace, cursor string, budget int) ([]job.Record, string, error) {
	n.walks++
	return n.Store.List(ctx, namespace, cursor, budget)
}

func (n *noWalk) ListDeadLetters(ctx context.Context, namespace, cursor string, budget int) ([]job.DeadLetter, string, int, error) {
	n.walks++
	return n.Store.ListDeadLetters(ctx, namespace, cursor, budget)
}

// TestWhatIsHiddenCostsNoWork: what a caller who may not see everything lists, exports and changes is found by the lanes
// that it may see. Pages, and their tokens, are the same whatever others have.
func TestWhatIsHiddenCostsNoWork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	store := &noWalk{Store: r.store}
	limited, err := registry.NewUnhurried(registry.Options{Store: store, SharedLimits: r.store.Limits(), Ledger: r.book,
		Lanes: r.overview})
	if err != nil {
		t.Fatal(err)
	}
	fillNamespaces(t, r, 50)
	for i := range 4 {
		d := jobOf(fmt.Sprint("dead-", i))
		d.Namespace, d.Queue = "b", "mail"
		if _, err := r.Create(t.Context(), d, ""); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.RunJob(t.Context(), d.Key, job.RequestManualRun{RequestID: "m"}); err != nil {
			t.Fatal(err)
		}
		r.die(t, d.Key)
	}
	type page struct{ names, token string }
	lists := map[string]func(f job.Filter, token string) (page, error){
		"dead letters": func(f job.Filter, token string) (page, error) {
			p, err := limited.ListDeadLetters(t.Context(), f, 3, token)
			var names []job.RecordID
			for _, l := range p.DeadLetters {
				names = append(names, l.Record)
			}
			return page{fmt.Sprint(names), p.Next}, err
		},
		"export": func(f job.Filter, token string) (page, error) {
			p, err := limited.ExportJobs(t.Context(), f, 3, token)
			var names []string
			for _, b := range p.Backups {
				names = append(names, b.Definition.ID)
			}
			return page{fmt.Sprint(names), p.Next}, err
		},
		"pause": func(f job.Filter, token string) (page, error) {
			p, err := limited.PauseAll(t.Context(), f, "", token)
			return page{fmt.Sprint(p.Done + p.Refused), p.Next}, err
		},
	}
	read := func(name string, f job.Filter) (pages []page) {
		for token := ""; len(pages) == 0 || token != ""; token = pages[len(pages)-1].token {
			p, err := lists[name](f, token)
			if err != nil || len(pages) > 100 {
				t.Fatalf("%s, page %d: %v", name, len(pages), err)
			}
			pages = append(pages, p)
		}
		return pages
	}
	filter := job.Filter{Namespace: "b", Limited: true}
	before := map[string][]page{}
	for _, name := range []string{"dead letters", "export"} {
		before[name] = read(name, filter)
	}
	var others []job.CreateRequest
	for i := range 900 {
		d := jobOf(fmt.Sprintf("other-%05d", i))
		d.Namespace, d.Queue = "a", fmt.Sprint("q", i%50)
		others = append(others, job.CreateRequest{Definition: d})
	}
	r.CreateBatch(t.Context(), others)
	for _, name := range []string{"dead letters", "export"} {
		if after := read(name, filter); !slices.Equal(after, before[name]) {
			t.Errorf("%s: %v, before others had jobs %v", name, after, before[name])
		}
	}
	if n := len(before["dead letters"]); n < 2 || n > 3 {
		t.Errorf("four dead letters in %d pages of three", n)
	}
	if pages := read("pause", filter); len(pages) != 1 || pages[0].names != "13" {
		t.Errorf("13 jobs are paused in pages %v", pages)
	}
	if store.walks != 0 {
		t.Errorf("%d walks over the jobs of everybody", store.walks)
	}
}

// TestVisibleWalkFindsAll: each job once, in any state, also one that was moved while its run is live.
func TestVisibleWalkFindsAll(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fillNamespaces(t, r, 700)
	moved := job.Key{Namespace: "a", ID: "job-00005"}
	if _, _, err := r.RunJob(t.Context(), moved, job.RequestManualRun{RequestID: "now"}); err != nil {
		t.Fatal(err)
	}
	r.lease(t, moved)
	_, err := r.Update(t.Context(), job.UpdateRequest{Key: moved, Merge: func(d job.Definition) (job.Definition, error) {
		d.Queue = "other"
		return d, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]int{"": 700, "web": 699, "other": 1} {
		seen, token := map[string]int{}, ""
		for pages := 0; pages == 0 || token != ""; pages++ {
			page, err := r.ExportJobs(t.Context(), job.Filter{Namespace: "a", Queue: queue, Limited: true}, 40, token)
			if err != nil || pages > 100 {
				t.Fatal(err)
			}
			for _, b := range page.Backups {
				seen[b.Definition.ID]++
			}
			token = page.Next
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("queue %q: %s is listed %d times", queue, id, n)
			}
		}
		if len(seen) != want {
			t.Errorf("queue %q: %d jobs, want %d", queue, len(seen), want)
		}
	}
	for _, token := range []string{"v", "v-1.a", "v99999.", "x"} {
		if _, err := r.ExportJobs(t.Context(), job.Filter{Namespace: "a", Limited: true}, 40, token); err == nil {
			t.Errorf("token %q is taken", token)
		}
	}
}

// TestChangesOfEarlierNodesContinue: a place that a node of an earlier version stored is one of a walk over all jobs.
// Who lists cannot name such a place.
func TestChangesOfEarlierNodesContinue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fillNamespaces(t, r, 30)
	all, err := r.ExportJobs(t.Context(), job.Filter{Namespace: "a"}, 10, "")
	if err != nil || all.Next == "" {
		t.Fatalf("token %q: %v", all.Next, err)
	}
	f := job.Filter{Namespace: "a", Limited: true}
	if _, err := r.ExportJobs(t.Context(), f, 10, all.Next); err == nil {
		t.Error("a limited caller continues a walk over all jobs")
	}
	f.TrustedPlace = true
	if _, err := r.ExportJobs(t.Context(), f, 10, all.Next); err != nil {
		t.Errorf("a stored place: %v", err)
	}
}
