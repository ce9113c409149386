package redisstore_test

import (
	"testing"

	"github.com/fermata-io/fermata/internal/job"
)

// TestTrailIsReadBetweenInstants: the first instant is part of what is read, the last
// one is not.
func TestTrailIsReadBetweenInstants(t *testing.T) {
	s, _ := jobsBed(t)
	if done, err := s.AppendTrail(t.Context(), job.TrailHead{}, []job.TrailRecord{{ID: "1700000000000-3", Method: "m", Resource: "r"}}, job.TrailTrim{}); err != nil || !done {
		t.Fatal(done, err)
	}
	all, _, err := s.ReadTrail(t.Context(), "", 0, 0, 10)
	if err != nil || len(all) != 1 || all[0].AtMS == 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	at := all[0].AtMS
	for _, c := range []struct {
		from, to int64
		want     int
	}{{at, 0, 1}, {at + 1, 0, 0}, {0, at, 0}, {0, at + 1, 1}, {at, at + 1, 1}, {at, at, 0}, {at - 1, at, 0}} {
		if got, _, err := s.ReadTrail(t.Context(), "", c.from, c.to, 10); err != nil || len(got) != c.want {
			t.Errorf("from %d to %d: %d records, want %d (%v)", c.from-at, c.to-at, len(got), c.want, err)
		}
	}
}
