package registry_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/registry"
)

// clientCall is one call about one job: what was asked.
type clientCall struct {
	verb  string
	id    string
	value string // that a creation or an edit writes
	etag  string // that guards an edit or a deletion
}

// seenJob is what an answer says of the job.
type seenJob struct {
	exists bool
	value  string
	paused bool
	etag   string
}

// clientAnswer is how a call ended. Any job that an answer shows is as of the
// moment when the call took effect.
type clientAnswer struct {
	fault string // "", "missing", "exists", "etag" or "conflict"
	job   seenJob
}

// jobAPI is the job API for one job as one would write it without thinking of
// concurrency.
var jobAPI = porcupine.Model{
	Partition: partition,
	Init:      func() any { return seenJob{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(seenJob), input.(clientCall), output.(clientAnswer)
		stale := in.etag != "" && in.etag != s.etag
		switch {
		case out.fault == "conflict":
			return true, s // given up without an effect, as the job kept changing
		case in.verb == "create" && out.fault == "exists":
			return s.exists, s
		case in.verb == "create":
			return !s.exists && out.fault == "" && out.job.value == in.value && !out.job.paused, out.job
		case out.fault == "missing":
			return !s.exists, s
		case !s.exists:
			return false, s
		case out.fault == "etag":
			return stale, s
		case stale || out.fault != "":
			return false, s
		}
		next := s
		switch in.verb {
		case "update":
			next.value, next.etag = in.value, out.job.etag
			return out.job == next && next.etag != s.etag, next
		case "delete":
			return true, seenJob{}
		case "pause":
			next.paused = true
		case "resume":
			next.paused = false
		}
		return out.job == next, next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// partition separates the calls by job, always in the same order of jobs.
func partition(history []porcupine.Operation) [][]porcupine.Operation {
	byJob := map[string][]porcupine.Operation{}
	for _, o := range history {
		id := o.Input.(clientCall).id
		byJob[id] = append(byJob[id], o)
	}
	var parts [][]porcupine.Operation
	for _, id := range slices.Sorted(maps.Keys(byJob)) {
		parts = append(parts, byJob[id])
	}
	return parts
}

// linearClient makes random calls and notes when they began and ended.
type linearClient struct {
	id       int
	registry *registry.Registry
	rng      *rand.Rand
	etags    map[string]string // as last seen
	history  []porcupine.Operation
}

func (c *linearClient) call(ctx context.Context, began time.Time, n int) error {
	in := clientCall{
		verb: []string{"create", "create", "update", "update", "update", "delete", "get", "get", "pause", "resume"}[c.rng.IntN(10)],
		id:   fmt.Sprint("job-", c.rng.IntN(2)),
	}
	in.value = fmt.Sprint(c.id, "-", n)
	if (in.verb == "update" || in.verb == "delete") && c.rng.IntN(2) == 0 {
		in.etag = c.etags[in.id]
	}
	o := porcupine.Operation{ClientId: c.id, Input: in, Call: time.Since(began).Nanoseconds()}
	record, err := c.do(ctx, in)
	o.Return = time.Since(began).Nanoseconds()
	answer, err := answerOf(record, err)
	if err != nil {
		return fmt.Errorf("%+v: %w", in, err)
	}
	if in.verb == "delete" {
		answer.job = seenJob{}
	} else if answer.fault == "" {
		c.etags[in.id] = answer.job.etag
	}
	o.Output = answer
	c.history = append(c.history, o)
	return nil
}

func (c *linearClient) do(ctx context.Context, in clientCall) (job.Record, error) {
	key := job.Key{Namespace: "default", ID: in.id}
	switch in.verb {
	case "create":
		d := jobOf(in.id)
		d.Labels = map[string]string{"value": in.value}
		return c.registry.Create(ctx, d, in.value)
	case "update":
		return c.registry.Update(ctx, job.UpdateRequest{Key: key, RequestID: in.value, Etag: in.etag, Merge: func(d job.Definition) (job.Definition, error) {
			d.Labels = map[string]string{"value": in.value}
			return d, nil
		}})
	case "delete":
		return job.Record{}, c.registry.Delete(ctx, key, in.etag)
	case "pause":
		return c.registry.Pause(ctx, key, in.value)
	case "resume":
		return c.registry.Resume(ctx, key, false)
	}
	return c.registry.Get(ctx, key)
}

// stuck shows, for each job, the end of the longest order that explains the answers,
// and the first calls that it has no place for.
func stuck(info porcupine.LinearizationInfo, history []porcupine.Operation) string {
	var b strings.Builder
	line := func(o porcupine.Operation) {
		fmt.Fprintf(&b, "  %d-%d client %d %s\n", o.Call/1000, o.Return/1000, o.ClientId, jobAPI.DescribeOperation(o.Input, o.Output))
	}
	for i, part := range jobAPI.Partition(history) {
		var longest []porcupine.Operation
		for _, partial := range info.PartialLinearizationsOperations()[i] {
			if len(partial) > len(longest) {
				longest = partial
			}
		}
		if len(longest) == len(part) {
			continue
		}
		fmt.Fprintf(&b, "explained %d of %d calls; the last of them:\n", len(longest), len(part))
		for _, o := range longest[max(0, len(longest)-8):] {
			line(o)
		}
		left := slices.DeleteFunc(slices.Clone(part), func(o porcupine.Operation) bool {
			return slices.ContainsFunc(longest, func(p porcupine.Operation) bool { return p.ClientId == o.ClientId && p.Call == o.Call })
		})
		slices.SortFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
		b.WriteString("no place for:\n")
		for _, o := range left[:min(8, len(left))] {
			line(o)
		}
	}
	return b.String()
}

func answerOf(r job.Record, err error) (clientAnswer, error) {
	var missing *job.MissingError
	var exists *job.ExistsError
	var etag *job.EtagError
	switch {
	case err == nil && r.Definition == nil: // deleted
		return clientAnswer{}, nil
	case err == nil:
		return clientAnswer{job: seenJob{exists: true, value: r.Definition.Labels["value"], paused: r.State.Paused, etag: r.Definition.Etag()}}, nil
	case errors.As(err, &missing):
		return clientAnswer{fault: "missing"}, nil
	case errors.As(err, &exists):
		return clientAnswer{fault: "exists"}, nil
	case errors.As(err, &etag):
		return clientAnswer{fault: "etag"}, nil
	case errors.Is(err, job.ErrConflict):
		return clientAnswer{fault: "conflict"}, nil
	}
	return clientAnswer{}, err
}

// TestJobAPIIsLinearizable: clients of two nodes create, edit, delete, pause and
// read the same jobs at once; there is an order of their calls, each between its
// beginning and its end, that explains every answer.
func TestJobAPIIsLinearizable(t *testing.T) {
	const clients, calls, rounds = 6, 60, 5
	first, second := newRigs(t)
	for round := range rounds {
		began := time.Now()
		all := make([]*linearClient, clients)
		errs := make([]error, clients)
		var wg sync.WaitGroup
		for i := range clients {
			all[i] = &linearClient{
				id: i, registry: []*registry.Registry{first.Registry, second.Registry}[i%2],
				rng: rand.New(rand.NewPCG(uint64(round), uint64(i))), etags: map[string]string{},
			}
			wg.Go(func() {
				for n := 0; n < calls && errs[i] == nil; n++ {
					errs[i] = all[i].call(t.Context(), began, round*calls+n)
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var history []porcupine.Operation
		faults := map[string]int{}
		for _, c := range all {
			history = append(history, c.history...)
			for _, o := range c.history {
				faults[o.Output.(clientAnswer).fault]++
			}
		}
		result, info := porcupine.CheckOperationsVerbose(jobAPI, history, 5*time.Minute)
		if result != porcupine.Ok {
			t.Fatalf("round %d is not linearizable (%s):\n%s", round, result, stuck(info, history))
		}
		if faults[""] < clients*calls/4 || faults["etag"] == 0 || faults["exists"] == 0 || faults["missing"] == 0 {
			t.Errorf("the calls of round %d ended %v: each kind has to be among them", round, faults)
		}
		for _, id := range []string{"job-0", "job-1"} {
			if err := first.Delete(t.Context(), job.Key{Namespace: "default", ID: id}, ""); err != nil && !errors.As(err, new(*job.MissingError)) {
				t.Fatal(err)
			}
		}
	}
}
