package redisstore

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// TestMayMatchLosesNothing: an entry that a filter selects is never left out undecoded, and
// one of another namespace, kind or job is.
func TestMayMatchLosesNothing(t *testing.T) {
	names := rapid.SampledFrom([]string{"", "a", "team-b", "é<&>", `quo"te`, `back\slash`, "\x01", "\xff"})
	kinds := rapid.SampledFrom(append(job.Kinds(), "", "some.later"))
	rapid.Check(t, func(t *rapid.T) {
		h := job.Event{
			Kind: kinds.Draw(t, "kind"), AtMS: unixtime.Milli(rapid.Int64().Draw(t, "at")), Key: job.Key{Namespace: names.Draw(t, "ns"), ID: names.Draw(t, "id")},
			Queue: names.Draw(t, "queue"), Reason: names.Draw(t, "reason"),
		}
		var f job.EventFilter
		for _, list := range []*[]string{&f.Namespaces, &f.Jobs, &f.Queues} {
			if rapid.Bool().Draw(t, "some") {
				*list = []string{names.Draw(t, "one"), names.Draw(t, "two")}
			}
		}
		if rapid.Bool().Draw(t, "some kinds") {
			f.Kinds = []string{kinds.Draw(t, "one"), "run.*"}
		}
		text := encodeEvent(&h)
		decoded := decodeEvent(0, "1-1", text)
		if f.Matches(&decoded) && !mayMatch(&f, text) {
			t.Fatalf("%+v selects %s, which is left out", f, text)
		}
	})
	text := encodeEvent(&job.Event{Kind: job.KindRunSucceeded, AtMS: 1, Key: job.Key{Namespace: "team-b", ID: "x"}})
	for _, f := range []job.EventFilter{{Namespaces: []string{"team-a"}}, {Kinds: []string{"job.*"}}, {Jobs: []string{"y"}}} {
		if mayMatch(&f, text) {
			t.Errorf("%+v has %s decoded", f, text)
		}
	}
	// A later version may have other fields in between: what is not found is decoded.
	if !mayMatch(&job.EventFilter{Namespaces: []string{"team-b"}}, `{"k":"run.succeeded","v":2,"t":1,"ns":"team-b"}`) {
		t.Error("an entry in another order is left out")
	}
}

// TestEventsHaveFewBytes: no byte of a text takes six, and labels are bounded. What an earlier version wrote, with
// escapes for HTML, is read.
func TestEventsHaveFewBytes(t *testing.T) {
	labels := map[string]string{"tier": "<gold>"}
	h := job.Event{Kind: job.KindJobPaused, AtMS: 1, Key: job.Key{Namespace: "a", ID: "j"}, Labels: labels}
	escaped, err := json.Marshal(eventText{Kind: h.Kind, AtMS: 1, NS: "a", Job: "j", Labels: labels})
	if err != nil || !strings.Contains(string(escaped), `\u003cgold`) {
		t.Fatalf("%s, %v", escaped, err)
	}
	if got := decodeEvent(0, "1-1", string(escaped)); !maps.Equal(got.Labels, labels) {
		t.Errorf("an earlier version has the labels %v", got.Labels)
	}
	h.Labels = maps.Clone(labels)
	for i := range 31 {
		h.Labels[strings.Repeat("<", 126)+fmt.Sprintf("%02d", i)] = strings.Repeat("&", 128)
	}
	text := encodeEvent(&h)
	if len(text) > 2*job.MaxEventLabels || strings.HasSuffix(text, "\n") {
		t.Errorf("an event has %d bytes", len(text))
	}
	if got := decodeEvent(0, "1-1", text); got.Labels["tier"] != "<gold>" {
		t.Errorf("the labels are %v", got.Labels)
	}
	letter := encodeLetter(&job.UndeliveredEvent{Event: h})
	if len(letter) > 2*job.MaxEventLabels {
		t.Errorf("an undelivered event has %d bytes", len(letter))
	}
}
