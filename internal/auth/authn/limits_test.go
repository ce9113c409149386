package authn

import (
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/authz"
)

// TestRateByDefault: without a word in the file there is a rate; 0 is no limit, and a rule goes first.
func TestRateByDefault(t *testing.T) {
	const tokens = "tokens: [{name: ann, sha256: " +
		"\"0123456789012345678901234567890123456789012345678901234567890123\"}]\n"
	const rule = "rules: [{subjects: [\"token:ann\"], role: viewer, namespaces: [a]}]\n"
	const limited = "rules: [{subjects: [\"token:ann\"], role: viewer, namespaces: [a], limits: {rate: 3}}]\n"
	for text, want := range map[string]float64{
		rule: authz.DefaultRate, rule + "limits: {calls: 5}": authz.DefaultRate, rule + "limits: {rate: 0}": 0,
		rule + "limits: {rate: 7}": 7, limited: 3,
	} {
		f, err := decodeFile([]byte(tokens + text))
		if err != nil {
			t.Fatal(err)
		}
		p, err := f.buildPolicy()
		if err != nil {
			t.Fatal(err)
		}
		if got := p.LimitsOf(authz.Identity{Subject: "token:ann"}); got.Rate != want || got.Burst != int(want) {
			t.Errorf("%q: %+v, want a rate of %v", text, got, want)
		}
	}
}

// TestCallsAndConnectionsByRole: a file that says nothing of them leaves them to the role that
// has most; 0 is no limit, and a rule goes before the file's limits.
func TestCallsAndConnectionsByRole(t *testing.T) {
	const tokens = "tokens: [{name: ann, sha256: \"0123456789012345678901234567890123456789012345678901234567890123\"}," +
		" {name: bob, sha256: \"1123456789012345678901234567890123456789012345678901234567890123\"}]\n"
	rule := func(role, more string) string {
		return "  - {subjects: [\"token:ann\"], role: " + role + ", namespaces: [\"*\"]" + more + "}\n"
	}
	for text, want := range map[string][2]int{
		rule("viewer", ""):                                              {2_000, 1_000},
		rule("worker", ""):                                              {20_000, 10_000},
		rule("viewer", "") + rule("worker", ""):                         {20_000, 10_000},
		rule("node", ""):                                                {0, 0},
		rule("viewer", ", limits: {calls: 3}"):                          {3, 1_000},
		rule("viewer", ", limits: {calls: 0, connections: 0}"):          {0, 0},
		rule("viewer", "") + "limits: {calls: 7, connections: 8}\n":     {7, 8},
		rule("worker", "") + "limits: {calls: 0, connections: 0}\n":     {0, 0},
		rule("worker", ", limits: {calls: 9}") + "limits: {calls: 1}\n": {9, 10_000},
	} {
		f, err := decodeFile([]byte(tokens + "rules:\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		p, err := f.buildPolicy()
		if err != nil {
			t.Fatal(err)
		}
		if got := p.LimitsOf(authz.Identity{Subject: "token:ann"}); got.MaxOpenCalls != want[0] || got.Connections != want[1] {
			t.Errorf("%q: %+v, want %v", text, got, want)
		}
		if got := p.LimitsOf(authz.Identity{Subject: "token:bob"}); strings.Contains(text, "\nlimits") == (got.MaxOpenCalls == 32) {
			t.Errorf("%q: %+v for an identity without a role", text, got)
		}
	}
}
