package job

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// numbered returns n texts that differ.
func numbered(name string, n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprintf("%s%d", name, i))
	}
	return texts
}

// TestRecordsSayWhatIsCut: a list says how many entries are left out, texts with the same beginning remain different,
// and what is within the bounds stays as it is.
func TestRecordsSayWhatIsCut(t *testing.T) {
	full := TrailRecord{Names: numbered("n", MaxTrailNames), Fields: numbered("f", MaxTrailFields),
		Identity: strings.Repeat("i", MaxTrailText), Resource: strings.Repeat("r", 2*MaxTrailText)}
	if got := full.Clipped(); !reflect.DeepEqual(got, full) {
		t.Errorf("a full record was changed: %+v", got)
	}
	long := TrailRecord{Names: numbered("n", MaxTrailNames+3), Fields: append(slices.Repeat([]string{""}, 40), numbered("f", MaxTrailFields+1)...)}
	got := long.Clipped()
	if len(got.Names) != MaxTrailNames || got.Names[MaxTrailNames-1] != "+4 more" {
		t.Errorf("names %q", got.Names)
	}
	if len(got.Fields) != MaxTrailFields || got.Fields[0] != "f0" || got.Fields[MaxTrailFields-1] != "+2 more" {
		t.Errorf("fields %q", got.Fields)
	}
	if again := got.Clipped(); !reflect.DeepEqual(again, got) {
		t.Errorf("clipped again: %+v", again)
	}
	if got := ClipList(numbered("n", 3), 9, 20); !slices.Equal(got, append(numbered("n", 3), "+6 more")) {
		t.Errorf("a list that was cut before: %q", got)
	}
	same := strings.Repeat("ä", 2*MaxTrailText)
	record := func(end string) TrailRecord {
		text := same + end
		return TrailRecord{Identity: text, Peer: text, Node: text, Method: text, RequestID: text, Resource: text,
			Names: []string{text}, Fields: []string{text}}.Clipped()
	}
	a, b := record("a"), record("b")
	texts := func(r TrailRecord) []string {
		return []string{r.Identity, r.Peer, r.Node, r.Method, r.RequestID, r.Names[0], r.Fields[0], r.Resource}
	}
	for i, text := range texts(a) {
		if text == texts(b)[i] || len(text) > 2*MaxTrailText || i < 7 && len(text) > MaxTrailText {
			t.Errorf("text %d of %d bytes: %q", i, len(text), text)
		}
	}
	if again := a.Clipped(); !reflect.DeepEqual(again, a) {
		t.Errorf("clipped again: %+v", again)
	}
}
