package visible

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// steering is a text of each kind that steers.
const steering = "\x7f\u0080\u009b\u00ad\u034f\u061c\u115f\u180e\u200b\u200d\u200e\u2028\u2029\u202e\u2060\u2066\u3164\ufe0f\ufeff\uffa0\U000e0041\U000e0100\U0001d173"

func TestNothingSteers(t *testing.T) {
	for _, r := range steering + "\x00\x1b\b\n" {
		if !MustEscape(r) {
			t.Errorf("%U does not steer", r)
		}
	}
	for _, r := range "aZ ~äß日本עברית😀€\u00a0\u0301" {
		if MustEscape(r) {
			t.Errorf("%U steers", r)
		}
	}
	if got := Line("a\tb\n\x1b[2J" + steering + "\xff"); strings.ContainsFunc(got, MustEscape) ||
		!strings.HasPrefix(got, "a b \ufffd[2J") {
		t.Errorf("%q", got)
	}
	if got := YAML("\u202e\U000e0041"); got != `\u202E\U000E0041` {
		t.Error(got)
	}
}

func TestJSONStaysTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text") + steering
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		shown := JSON(string(encoded))
		var back string
		if err := json.Unmarshal([]byte(shown), &back); err != nil || back != text ||
			strings.ContainsFunc(shown, MustEscape) {
			t.Fatalf("%q became %q: %v", text, shown, err)
		}
	})
}
