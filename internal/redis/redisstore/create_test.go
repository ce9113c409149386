package redisstore

import (
	"errors"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestCreationWithoutAnswer: a call whose records have had no answer has not succeeded, as after a panic of the caller
// that sent them.
func TestCreationWithoutAnswer(t *testing.T) {
	s := &Store{}
	var records []job.Record
	for _, id := range []string{"a", "b"} {
		d := job.WithDefaults(job.Definition{Key: job.Key{Namespace: "ns", ID: id}, Queue: "q", Handler: "h"})
		records = append(records, job.Record{Definition: &d, State: job.State{Lane: job.Lane{Namespace: "ns", Queue: "q"}}})
	}
	c := s.newCreateCall(job.CreateBatch{Records: records})
	for i := range c.all {
		if r := c.result(); !errors.Is(r.Err, job.ErrUnavailable) || len(r.Results) > 0 {
			t.Errorf("with %d answers: %+v", i, r)
		}
		c.all[i].isAnswered = true
	}
	if r := c.result(); r.Err != nil || len(r.Results) != len(records) {
		t.Errorf("with all answers: %+v", r)
	}
}
