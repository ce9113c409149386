package redisstore_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
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
	}{{int64(at), 0, 1}, {int64(at + 1), 0, 0}, {0, int64(at), 0}, {0, int64(at + 1), 1}, {int64(at), int64(at + 1), 1}, {int64(at), int64(at), 0}, {int64(at - 1), int64(at), 0}} {
		if got, _, err := s.ReadTrail(t.Context(), "", unixtime.Milli(c.from), unixtime.Milli(c.to), 10); err != nil || len(got) != c.want {
			t.Errorf("from %d to %d: %d records, want %d (%v)", int64(unixtime.Milli(c.from)-at), int64(unixtime.Milli(c.to)-at), len(got), c.want, err)
		}
	}
}

// TestTrailIsAChain: what is appended is read as it was hashed, an end that has moved refuses, and
// what is trimmed, the exports and the bytes show.
func TestTrailIsAChain(t *testing.T) {
	s, admin := jobsBed(t)
	state := func() job.TrailState {
		t.Helper()
		state, err := s.TrailState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	first := state()
	if first.Head.Seq != 0 || first.Head.Raw != "" || first.Newest.ID != "" || len(first.Exports) != 0 {
		t.Fatalf("%+v", first)
	}
	prev := []byte{}
	record := func(seq int64) job.TrailRecord {
		r := job.TrailRecord{
			ID: fmt.Sprintf("%d-7", seq), AtMS: unixtime.Milli(seq), Identity: "\u00e4", Peer: "p", Node: "n", Method: "m", Resource: "r", Names: []string{"a", "b\nc", ""}, Fields: []string{"f"},
			RequestID: "q", Code: 2, Changed: 3, Refused: 4, Before: []byte{1}, After: []byte{2}, Seq: seq, Version: job.ChainVersion, Prev: prev, KeyID: "k", Signature: []byte{9},
		}.Clipped()
		r.Hash = r.ChainHash()
		prev = r.Hash
		return r
	}
	one, two := record(1), record(2)
	if done, err := s.AppendTrail(t.Context(), first.Head, []job.TrailRecord{one, two}, job.TrailTrim{}); !done || err != nil {
		t.Fatal(done, err)
	}
	for range 2 {
		if done, err := s.AppendTrail(t.Context(), first.Head, []job.TrailRecord{one, two}, job.TrailTrim{}); done || err != nil {
			t.Errorf("the same once more: %v, %v", done, err)
		}
	}
	got, err := s.ReadTrailFrom(t.Context(), "", 10)
	if err != nil || len(got) != 2 || !reflect.DeepEqual(got[0], one) || !reflect.DeepEqual(got[1], two) || string(got[1].ChainHash()) != string(two.Hash) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = s.ReadTrailFrom(t.Context(), one.ID, 10); err != nil || len(got) != 1 || got[0].Seq != 2 {
		t.Errorf("after the first: %+v, %v", got, err)
	}
	now := state()
	if now.Head.Seq != 2 || string(now.Head.Hash) != string(two.Hash) || now.OldestID != one.ID || now.OldestSeq != 1 || !reflect.DeepEqual(now.Newest, two) ||
		now.OldestBytes <= 0 || now.Head.Bytes != 2*now.OldestBytes+int64(43+4) { // hash and name of the one before
		t.Errorf("%+v", now)
	}
	save := func(e, was job.TrailExport, want bool) {
		t.Helper()
		if done, err := s.SaveTrailExport(t.Context(), e, was); err != nil || done != want {
			t.Errorf("%+v after %+v: %v, %v", e, was, done, err)
		}
	}
	opened := job.TrailExport{Name: "b", Seq: 1, Identity: "ann of x"}
	later := job.TrailExport{Name: "b", ID: "1-7", Seq: 1, UpdatedMS: 5, Identity: "bob"}
	save(job.TrailExport{Name: "c"}, job.TrailExport{}, true)
	save(opened, job.TrailExport{}, true)
	save(opened, job.TrailExport{}, false) // it is there
	save(later, job.TrailExport{Name: "b", Seq: 1, Identity: "bob"}, false)
	save(later, job.TrailExport{Name: "b", Seq: 2, Identity: "ann of x"}, false)
	save(later, opened, true)
	save(opened, opened, false) // it never goes back
	// Nodes of earlier builds know no identities, and leave them when they delete an export.
	admin.HSet(t.Context(), "fermata:{meta}:audit:exports", "a", "0 0 ", "identity:d", "YW5u")
	save(job.TrailExport{Name: "a", UpdatedMS: 1, Identity: "ann"}, job.TrailExport{Name: "a"}, true)
	save(job.TrailExport{Name: "d", Identity: "bob"}, job.TrailExport{}, true)
	if err := s.DropTrailExport(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	if err := s.DropTrailExport(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if exports := state().Exports; len(exports) != 2 || exports[0] != (job.TrailExport{Name: "a", UpdatedMS: 1, Identity: "ann"}) || exports[1] != later {
		t.Errorf("%+v", exports)
	}
	if done, err := s.AppendTrail(t.Context(), now.Head, []job.TrailRecord{record(3)}, job.TrailTrim{Before: two.ID}); !done || err != nil {
		t.Fatal(done, err)
	}
	if now = state(); now.OldestSeq != 2 || now.Head.Seq != 3 {
		t.Errorf("%+v", now)
	}
	if done, err := s.AppendTrail(t.Context(), now.Head, []job.TrailRecord{two}, job.TrailTrim{}); done || err == nil || state().Head.Seq != 3 {
		t.Errorf("an id that is not above the newest: %v, %v", done, err)
	}
}

// TestTrailTakesTheBytesThatAreCounted: the bound of bytes is about what Redis uses.
func TestTrailTakesTheBytesThatAreCounted(t *testing.T) {
	const records = 3000
	for what, signed := range map[string]bool{"each signed": true, "none signed": false} {
		s, admin := jobsBed(t)
		head, prev := job.TrailHead{}, []byte(nil)
		for seq := int64(1); seq <= records; seq++ {
			id := fmt.Sprintf("%d-0", 1_790_000_000_000+seq*1_000)
			name := fmt.Sprintf("namespaces/team-a/jobs/nightly-%d", seq%500)
			r := job.TrailRecord{ID: id, Identity: "jwt:org:ann@example.org", Peer: "10.1.2.3:51234", Node: "fermata-0", Method: "fermata.v1.JobService/UpdateJob",
				Resource: name, Fields: []string{"schedule"}, Before: make([]byte, 32), After: make([]byte, 32), Seq: seq, Version: job.ChainVersion, Prev: prev}
			r.Hash = r.ChainHash()
			if prev = r.Hash; signed {
				r.KeyID, r.Signature = "2027", append(append([]byte{}, r.Hash...), r.Hash...)
			}
			if done, err := s.AppendTrail(t.Context(), head, []job.TrailRecord{r}, job.TrailTrim{}); !done || err != nil {
				t.Fatal(done, err)
			}
			state, err := s.TrailState(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			head = state.Head
		}
		used, err := admin.MemoryUsage(t.Context(), "fermata:{meta}:audit", 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes a record, counted as %d", what, used/records, head.Bytes/records)
		if share := float64(head.Bytes) / float64(used); share < 0.8 || share > 1.4 {
			t.Errorf("%s: Redis uses %d bytes, %d are counted", what, used, head.Bytes)
		}
	}
}

// TestForgedNumbersOfTheTrailAreNone: whoever writes a number into the chain's end, a record or an export that
// sums would overflow on has written none; the greatest that counts can be added to.
func TestForgedNumbersOfTheTrailAreNone(t *testing.T) {
	s, admin := jobsBed(t)
	const most = int64(1) << 53
	if done, err := s.AppendTrail(t.Context(), job.TrailHead{}, []job.TrailRecord{{ID: "1700000000000-3", Method: "m", Resource: "r", Seq: 1}}, job.TrailTrim{}); err != nil || !done {
		t.Fatal(done, err)
	}
	var head, exports string
	for _, key := range admin.Keys(t.Context(), "*audit*").Val() {
		switch {
		case strings.HasSuffix(key, ":head"):
			head = key
		case strings.HasSuffix(key, ":audit"):
			exports = key + ":exports"
		}
	}
	for text, want := range map[string]int64{
		"1 aGFzaA 100": 1, fmt.Sprintf("%d aGFzaA 100", most): most, fmt.Sprintf("%d aGFzaA 100", most+1): 0,
		"9223372036854775807 aGFzaA 100": 0, "9223372036854775808 aGFzaA 100": 0, "5 aGFzaA 9223372036854775807": 0, "-5 aGFzaA 100": 0, "0 aGFzaA 1": 0, "x aGFzaA 1": 0,
	} {
		if err := admin.HSet(t.Context(), head, "head", text).Err(); err != nil {
			t.Fatal(err)
		}
		state, err := s.TrailState(t.Context())
		if err != nil || state.Head.Seq != want || state.Head.Raw != text || want == 0 && (state.Head.Bytes != 0 || len(state.Head.Hash) != 0) {
			t.Errorf("%s: %+v, %v", text, state.Head, err)
		}
	}
	for id, want := range map[string]string{"1-1": "1-1", strings.Repeat("0", 150) + "7-3": "7-3", "other": ""} {
		if err := admin.HSet(t.Context(), exports, "siem", "9223372036854775807 -9223372036854775808 "+id).Err(); err != nil {
			t.Fatal(err)
		}
		state, err := s.TrailState(t.Context())
		if err != nil || len(state.Exports) != 1 || state.Exports[0] != (job.TrailExport{Name: "siem", ID: want}) {
			t.Errorf("%s: %+v, %v", id, state.Exports, err)
		}
		if _, err := s.ReadTrailFrom(t.Context(), state.Exports[0].ID, 1); err != nil {
			t.Error(err)
		}
	}
}
