package convert

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestBoundFieldsAreNamed: an edit counts as whole only if it takes from its caller every field that a sealed payload
// is bound to; a path inside a field is not the field.
func TestBoundFieldsAreNamed(t *testing.T) {
	sent := &fermatav1.Job{Queue: "q", Handler: "h", Timeout: durationpb.New(1e9), Labels: map[string]string{"a": "b"},
		RetryPolicy: &fermatav1.RetryPolicy{MaxAttempts: 9}}
	key := job.Key{Namespace: "n", ID: "j"}
	read := func(paths []string) *job.Definition {
		merged := &fermatav1.Job{}
		CopyFields(merged, sent, paths)
		d := new(Reader).Definition(key, merged)
		return &d
	}
	whole := read(SettableFields)
	if !NamesBoundFields(SettableFields) {
		t.Error("a mask of all fields does not name the bound ones")
	}
	for _, path := range SettableFields {
		others := slices.DeleteFunc(slices.Clone(SettableFields), func(p string) bool { return p == path })
		if bound := !read(others).EqualBoundData(whole); NamesBoundFields(others) == bound {
			t.Errorf("%s: bound: %v, and a mask without it names the bound fields: %v", path, bound, !bound)
		}
	}
	for paths, want := range map[string]bool{
		"queue handler timeout labels retry_policy.max_attempts": true,
		"queue handler timeout labels retry_policy.preset":       false,
		"queue handler timeout.seconds labels retry_policy":      false,
		"payload": false,
		"payload queue handler timeout labels retry_policy.max_attempts priority target": true,
	} {
		if got := NamesBoundFields(strings.Fields(paths)); got != want {
			t.Errorf("%s: %v", paths, got)
		}
	}
}
