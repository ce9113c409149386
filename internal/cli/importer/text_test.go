package importer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// FuzzText: a text that is written is read again as it was.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "\n", " \n", "a\n", "a\n\n", " a\nb", "- a", "{a: b}", "#", "a #b", "yes", "null", "1", "~", "2026-01-01", "\x00", "\u0085", "\ufeff", "'\"", "a\tb\n", "|\n>", "%", "@", "\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		m := newMapping().setField("id", "x").setField("in", newMapping().setField("list", []string{s}).setField("one", s)).setField("flow", newMapping().setField("s", []string{s}).setFlowStyle())
		out, err := Write(s, []Entry{{Source: s, Notes: []Note{{Text: s}}, fields: m, id: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			ID string
			In struct {
				List []string
				One  string
			}
			Flow struct{ S []string }
		}
		if err := yaml.NewDecoder(strings.NewReader(string(out))).Decode(&got); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got.ID != "x" || got.In.One != s || len(got.In.List) != 1 || got.In.List[0] != s || len(got.Flow.S) != 1 || got.Flow.S[0] != s {
			t.Fatalf("%q became %+v\n%s", s, got, out)
		}
	})
}
