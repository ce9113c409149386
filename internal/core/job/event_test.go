package job

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// TestTokensOfPlaces: what was encoded is decoded, at about ten bytes a shard, and
// nothing else is.
func TestTokensOfPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Place {
			return Place{MS: unixtime.Milli(rapid.Int64Range(0, int64(NeverMS)).Draw(t, "ms")), Seq: rapid.Uint64().Draw(t, "seq")}
		}), 1, 100).Draw(t, "places")
		token := EncodePlaces(places)
		got, ok := DecodePlaces(token)
		if !ok || !slices.Equal(got, places) {
			t.Fatalf("%v from %v", got, places)
		}
		broken := []byte(token)
		i := rapid.IntRange(0, len(broken)-1).Draw(t, "at")
		broken[i] = rapid.SampledFrom([]byte("Aa0_-")).Draw(t, "letter")
		if again, ok := DecodePlaces(string(broken)); ok && string(broken) != token && !slices.Equal(again, places) {
			t.Fatalf("a token with another letter is %v", again)
		}
	})
	if n := len(EncodePlaces(slices.Repeat([]Place{{MS: 1_800_000_000_000, Seq: 100_000}}, 64))); n > 500 {
		t.Errorf("%d letters for 64 shards", n)
	}
	for _, token := range []string{"", "AQ", "AQECAwQF", strings.Repeat("A", 100)} {
		if p, ok := DecodePlaces(token); ok {
			t.Errorf("%q is %v", token, p)
		}
	}
}

func FuzzDecodePlaces(f *testing.F) {
	f.Add(EncodePlaces([]Place{{}, {MS: 5, Seq: 7}, PlaceBefore(9)}))
	f.Add("AQECAwQF")
	f.Fuzz(func(t *testing.T, token string) {
		places, ok := DecodePlaces(token)
		if ok && (len(places) == 0 || slices.ContainsFunc(places, func(p Place) bool { return p.MS < 0 })) {
			t.Errorf("%v", places)
		}
	})
}

func TestFilterOfHappenings(t *testing.T) {
	dead := Event{Kind: KindRunDead, Key: Key{Namespace: "n", ID: "j"}, Queue: "q", Labels: map[string]string{"team": "ops", "tier": ""}}
	taken := Event{Kind: KindShardTaken}
	for _, c := range []struct {
		f           EventFilter
		dead, taken bool
	}{
		{EventFilter{}, true, true},
		{EventFilter{Namespaces: []string{"m", "n"}}, true, false},
		{EventFilter{Namespaces: []string{"m"}}, false, false},
		{EventFilter{Queues: []string{"q"}, Jobs: []string{"j"}}, true, false},
		{EventFilter{Queues: []string{"q"}, Jobs: []string{"k"}}, false, false},
		{EventFilter{Kinds: []string{"run.*"}}, true, false},
		{EventFilter{Kinds: []string{"job.*", "shard.taken"}}, false, true},
		{EventFilter{Labels: map[string]string{"team": "ops"}}, true, false},
		{EventFilter{Labels: map[string]string{"team": "dev"}}, false, false},
		{EventFilter{Labels: map[string]string{"tier": ""}}, true, false},
		{EventFilter{Covers: func(queue string) bool { return queue != "other" }}, true, false},
		{EventFilter{Covers: func(queue string) bool { return queue == "other" }}, false, false},
	} {
		if got := c.f.Matches(&dead); got != c.dead {
			t.Errorf("%+v of a run: %v", c.f, got)
		}
		if got := c.f.Matches(&taken); got != c.taken {
			t.Errorf("%+v of a shard: %v", c.f, got)
		}
		if v := c.f.Validate(""); len(v) > 0 {
			t.Errorf("%+v: %v", c.f, v)
		}
	}
	for field, f := range map[string]EventFilter{
		"namespaces": {Namespaces: []string{"a b"}}, "queues": {Queues: []string{""}}, "kinds": {Kinds: []string{"run.dade"}},
		"job_ids": {Jobs: slices.Repeat([]string{"a"}, maxFilterTerms+1)}, "labels": {Labels: map[string]string{"": "x"}},
	} {
		if v := f.Validate("f."); len(v) != 1 || !strings.HasPrefix(v[0].Field, "f."+field) {
			t.Errorf("%s: %v", field, v)
		}
	}
}

// TestEveryNoticeHasAKindOrIsListed: these are the notices that subscribers do not receive.
func TestEveryNoticeHasAKindOrIsListed(t *testing.T) {
	silent := []NoticeKind{AttemptReturned, StaleRefused}
	for kind := NoticeKind(0); kind.String() != "unknown"; kind++ {
		h, told := NewEvent(&Notice{Kind: kind, RunID: "1-1"}, "q", nil)
		if told == slices.Contains(silent, kind) {
			t.Errorf("%v: told %v", kind, told)
		}
		if told && (!slices.Contains(Kinds(), h.Kind) || h.Correlation() == "") {
			t.Errorf("%v is %+v", kind, h)
		}
	}
}

func TestPlaces(t *testing.T) {
	before := PlaceBefore(1000)
	if !before.Before(Place{MS: 1000}) || before.Before(Place{MS: 999, Seq: math.MaxUint64}) || before.Exact() || !(Place{}).Exact() {
		t.Errorf("%v", before)
	}
}
