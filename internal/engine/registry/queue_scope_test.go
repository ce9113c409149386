package registry

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

// newHidden has 40 jobs of queue web and three of queue mail, with a dead letter each.
func newHidden(t *testing.T) (*fake, *Registry) {
	t.Helper()
	f, r := newFake(t)
	add := func(id, queue, letterQueue string) {
		key := hourly(t, r, id, func(d *job.Definition) {
			d.Queue, d.Labels = queue, map[string]string{"customer": map[string]string{"mail": "own", "web": "acme"}[queue]}
		})
		record := f.bury(key, 0, letterQueue)
		letter := f.letters[job.RecordID(record)]
		letter.Labels = map[string]string{"customer": "acme"}
		f.letters[job.RecordID(record)] = letter
		f.worst[job.RankingFailing] = append(f.worst[job.RankingFailing], job.Ranked{Record: key.Record(), Rank: 1})
		stored := f.records[key]
		stored.State.Failures = 3
		f.records[key] = stored
	}
	for i := range 400 {
		add(fmt.Sprintf("secret-%03d", i), "web", []string{"mail", "web"}[i%2])
		if i%150 == 50 {
			add(fmt.Sprintf("open-%03d", i), "mail", "mail")
		}
	}
	return f, r
}

func coversMail(queue string) bool { return queue == "mail" }

// TestPagesShowNothingOfHiddenJobs: what a caller may not see fills no page, is named by no
// token, and decides by no filter whether there is a token.
func TestPagesShowNothingOfHiddenJobs(t *testing.T) {
	_, r := newHidden(t)
	list := func(f job.Filter, token string) ([]string, string, error) {
		page, err := r.List(t.Context(), f, 1, token)
		return names(page.Records, func(r job.Record) string { return r.Definition.ID }), page.Next, err
	}
	letters := func(f job.Filter, token string) ([]string, string, error) {
		page, err := r.ListDeadLetters(t.Context(), f, 1, token)
		return names(page.DeadLetters, func(l job.DeadLetter) string { return string(l.Record) }), page.Next, err
	}
	redrive := func(f job.Filter, token string) ([]string, string, error) {
		got, err := r.RedriveDeadLetters(t.Context(), job.RedriveRequest{Filter: f, Token: token, DryRun: true})
		return slices.Repeat([]string{"open"}, got.Done), got.Next, err
	}
	for name, call := range map[string]func(job.Filter, string) ([]string, string, error){"jobs": list, "letters": letters, "redrive": redrive} {
		t.Run(name, func(t *testing.T) {
			for text, filter := range map[string]job.Filter{
				"all": {}, "hidden label": {Labels: map[string]string{"customer": "acme"}}, "no label": {Labels: map[string]string{"customer": "none"}},
				"hidden id": {IDPrefix: "secret"}, "no id": {IDPrefix: "nothing"},
			} {
				filter.Namespace, filter.Covers = "default", coversMail
				var seen []string
				for token, pages := "", 0; pages == 0 || token != ""; pages++ {
					shown, next, err := call(filter, token)
					if err != nil {
						t.Fatal(err)
					}
					position, _ := base64.RawURLEncoding.DecodeString(next)
					if len(shown) == 0 && next != "" || strings.Contains(string(position), "secret") {
						t.Fatalf("%s: shown are %v, the token is %s", text, shown, position)
					}
					seen, token = append(seen, shown...), next
				}
				want := 0
				if text == "all" || text == "hidden label" && name != "jobs" {
					want = 3
				}
				if len(seen) != want || slices.ContainsFunc(seen, func(s string) bool { return !strings.Contains(s, "open") }) {
					t.Errorf("%s: %v, want %d", text, seen, want)
				}
			}
		})
	}
}

// TestHiddenJobsTakeNoPlacesOfTopJobs.
func TestHiddenJobsTakeNoPlacesOfTopJobs(t *testing.T) {
	_, r := newHidden(t)
	got, err := r.TopJobs(t.Context(), job.TopQuery{Ranking: job.RankingFailing, Namespace: "default", Limit: 3, Covers: coversMail})
	if names := topNames(got.Jobs); err != nil || len(names) != 3 || slices.ContainsFunc(names, func(n string) bool { return !strings.Contains(n, "open") }) {
		t.Errorf("%v (%v)", names, err)
	}
}

func names[T any](list []T, name func(T) string) (out []string) {
	for _, x := range list {
		out = append(out, name(x))
	}
	return out
}
