package redisstore

import (
	"regexp"
	"strings"
	"testing"
)

// TestApplyUsesEveryStep: the table of steps and apply.lua have the same steps, and each letter
// is used once.
func TestApplyUsesEveryStep(t *testing.T) {
	text, err := sources.ReadFile("lua/apply.lua")
	if err != nil {
		t.Fatal(err)
	}
	lua := string(text)
	head, code, ok := strings.Cut(lua, "\n\n")
	if !ok {
		t.Fatal("apply.lua does not begin with its contract")
	}
	letters := map[byte]string{}
	for _, s := range applySteps {
		if other := letters[s.letter]; other != "" {
			t.Errorf("%s and %s have the same letter %c", s.macro, other, s.letter)
		}
		letters[s.letter] = s.macro
		named := regexp.MustCompile(`\b` + s.macro + `\b`)
		if !named.MatchString(head) {
			t.Errorf("the contract of apply.lua does not describe %s", s.macro)
		}
		if !named.MatchString(code) {
			t.Errorf("apply.lua does not use %s", s.macro)
		}
	}
	bare := regexp.MustCompile(`(item|items\[[^]]*\])\.[a-z]\b`)
	for line := range strings.Lines(code) {
		if use := bare.FindString(line); use != "" {
			t.Errorf("apply.lua names a step by its letter: %s", strings.TrimSpace(line))
		}
	}
}

// TestMacrosAreExpanded: what is sent to Redis has letters, literals and numbers in place of macros.
func TestMacrosAreExpanded(t *testing.T) {
	text := loadScripts(true, true).apply.Source
	if left := macroPattern.FindString(text); left != "" {
		t.Errorf("macro %s is left in the script", left)
	}
	for _, want := range []string{
		"item.w or item.k", "{a = 0, t = 0, x = 0, w = 2, k = 1, d = 0, q = 0, u = 0, l = 1, s = 4, f = 1, h = 2, c = 6, m = 1, z = 2, r = 3, o = 2, b = 2, v = 4, g = 1, e = 7, p = 1, n = 1, y = 3, j = 2}",
		"byte(steps) == 119, steps == 'wh'", "writes and (adds_history and 6 or 4)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the script lacks %q", want)
		}
	}
}
