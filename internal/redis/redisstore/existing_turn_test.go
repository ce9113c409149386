package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// TestExistingJobsAreReadInTurn: a creation with turns for reads takes one for each 32 jobs, after the step that it may
// share with others: while it waits, a creation of somebody else in its shard is answered. Without a turn, jobs that
// are new are stored all the same.
func TestExistingJobsAreReadInTurn(t *testing.T) {
	s, _ := jobsBed(t)
	payload := "as stored"
	record := func(id string) job.Record {
		d := job.WithDefaults(job.Definition{
			Key: job.Key{Namespace: "ns", ID: id}, Handler: "h", AnchorMS: 1_800_000_000_000, Payload: []byte(payload),
			Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
		})
		state := job.State{Revision: 1, Lane: job.Lane{Namespace: "ns", Queue: "q"}, Due: 1_900_000_000_000}
		return job.Record{Definition: &d, State: state}
	}
	batches := func(begin func() (func(), error), ids ...string) (list []job.CreateBatch) {
		place := map[int]int{}
		for _, id := range ids {
			r := record(id)
			shard := s.ShardOf(r.Definition.Key)
			at, ok := place[shard]
			if !ok {
				at = len(list)
				place[shard], list = at, append(list, job.CreateBatch{Shard: shard, BeginRead: begin})
			}
			list[at].Records = append(list[at].Records, r)
		}
		return list
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint("job-", i))
	}
	inShard := s.ShardOf(job.Key{Namespace: "ns", ID: "job-0"})
	for i := 100; len(many) < 105; i++ { // some of one shard
		if id := fmt.Sprint("job-", i); s.ShardOf(job.Key{Namespace: "ns", ID: id}) == inShard {
			many = append(many, id)
		}
	}
	s.Create(t.Context(), batches(nil, many[:104]...))
	payload = "another" // so that the creation is not taken for a repetition
	lacksTurn := errors.New("no turn")
	for name, c := range map[string]struct {
		ids []string
		err error
	}{
		"shared step": {many[100:104], nil}, "many shards": {many[:104], nil},
		"shared step, no turn": {many[100:], lacksTurn}, "many shards, no turn": {many, lacksTurn},
	} {
		begun, ended := 0, 0
		begin := func() (func(), error) {
			begun++
			for _, reply := range s.Create(t.Context(), batches(nil, "job-0")) { // of somebody else
				if reply.Err != nil || reply.Results[0].Existing == nil {
					t.Errorf("%s: %+v", name, reply)
				}
			}
			return func() { ended++ }, c.err
		}
		created, read := 0, 0
		for _, reply := range s.Create(t.Context(), batches(begin, c.ids...)) {
			if reply.Err != nil {
				t.Fatalf("%s: %v", name, reply.Err)
			}
			for _, result := range reply.Results {
				switch {
				case result.Code == job.Created:
					created++
				case result.Existing != nil && result.Err == nil && string(result.Existing.Definition.Payload) == "as stored":
					read++
				case result.Existing != nil || result.Err != c.err:
					t.Errorf("%s: %+v", name, result)
				}
			}
		}
		turns := (len(c.ids) + 31) / 32
		if begun != turns || c.err == nil && (read != len(c.ids) || ended != turns) || c.err != nil && read+ended > 0 {
			t.Errorf("%s: %d read, %d created, %d turns begun, %d ended", name, read, created, begun, ended)
		}
		if created > 0 && c.err == nil {
			t.Errorf("%s: %d created", name, created)
		}
	}
	stored, err := s.Get(t.Context(), []job.Key{{Namespace: "ns", ID: many[104]}})
	if err != nil || stored[0] == nil {
		t.Errorf("a new job of a call without a turn: %v, %v", stored, err)
	}
}
