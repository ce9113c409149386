package authn

import (
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
