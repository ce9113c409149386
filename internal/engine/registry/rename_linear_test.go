package registry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/registry"
)

// namedJobs are the jobs of three names.
type namedJobs [3]seenJob

// renameCall is a call about one name; to is the new name of a rename.
type renameCall struct {
	clientCall
	name, to int
}

// renameAPI is the job API with renames, as one would write it without thinking of concurrency.
var renameAPI = porcupine.Model{
	Init: func() any { return namedJobs{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(namedJobs), input.(renameCall), output.(clientAnswer)
		if in.verb != "rename" {
			ok, next := jobAPI.Step(s[in.name], in.clientCall, out)
			s[in.name] = next.(seenJob)
			return ok, s
		}
		from := s[in.name]
		switch out.fault {
		case "conflict":
			return true, s
		case "missing":
			return !from.exists, s
		case "exists":
			return s[in.to].exists, s
		}
		renamed := from
		renamed.etag = out.job.etag
		ok := out.fault == "" && from.exists && !s[in.to].exists && out.job == renamed && renamed.etag != from.etag
		s[in.name], s[in.to] = seenJob{}, renamed
		return ok, s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// TestRenamesAreLinearizable: clients of two nodes create, edit, delete, pause, read and rename jobs of three names at
// once; there is an order of their calls, each between its beginning and its end, that explains every answer.
func TestRenamesAreLinearizable(t *testing.T) {
	const clients, calls, rounds = 4, 30, 8
	first, second := newRigs(t)
	names := []string{"job-0", "job-1", "job-2"}
	renamed := 0
	for round := range rounds {
		began := time.Now()
		histories, errs := make([][]porcupine.Operation, clients), make([]error, clients)
		var wg sync.WaitGroup
		for i := range clients {
			c := &linearClient{id: i, registry: []*registry.Registry{first.Registry, second.Registry}[i%2]}
			rng := rand.New(rand.NewPCG(uint64(round), uint64(i)))
			wg.Go(func() {
				for n := range calls {
					in := renameCall{name: rng.IntN(3)}
					in.verb = []string{"create", "update", "delete", "get", "pause", "resume", "rename", "rename", "rename"}[rng.IntN(9)]
					in.to = (in.name + 1 + rng.IntN(2)) % 3
					in.id, in.value = names[in.name], fmt.Sprint(i, "-", round*calls+n)
					o := porcupine.Operation{ClientId: i, Input: in, Call: time.Since(began).Nanoseconds()}
					answer, err := c.answer(t.Context(), in, names)
					o.Return, o.Output = time.Since(began).Nanoseconds(), answer
					if err != nil {
						errs[i] = fmt.Errorf("%+v: %w", in, err)
						return
					}
					histories[i] = append(histories[i], o)
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var history []porcupine.Operation
		for _, h := range histories {
			history = append(history, h...)
			for _, o := range h {
				if o.Input.(renameCall).verb == "rename" && o.Output.(clientAnswer).fault == "" {
					renamed++
				}
			}
		}
		if result, _ := porcupine.CheckOperationsVerbose(renameAPI, history, 5*time.Minute); result != porcupine.Ok {
			t.Fatalf("round %d is not linearizable: %s", round, result)
		}
		for _, name := range names {
			if err := first.Delete(t.Context(), keyOf(name), ""); err != nil && !errors.As(err, new(*job.MissingError)) {
				t.Fatal(err)
			}
		}
	}
	if renamed < 2*rounds {
		t.Errorf("only %d renames were successful", renamed)
	}
}

// answer makes a call. That a name is reserved for another call, or not free yet, is an answer without an effect.
func (c *linearClient) answer(ctx context.Context, in renameCall, names []string) (clientAnswer, error) {
	var record job.Record
	var err error
	if in.verb == "rename" {
		record, err = c.registry.Rename(ctx, job.RenameRequest{Key: keyOf(in.id), NewID: names[in.to], RequestID: in.value})
	} else {
		record, err = c.do(ctx, in.clientCall)
	}
	if errors.As(err, new(*job.BusyError)) {
		return clientAnswer{fault: "conflict"}, nil
	}
	answer, err := answerOf(record, err)
	if in.verb == "delete" {
		answer.job = seenJob{}
	}
	return answer, err
}
