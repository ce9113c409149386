package payloadkeys

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSignatures: each key of a ring verifies its signatures, of the same text only.
func TestSignatures(t *testing.T) {
	const oldKey, newKey = "old 3q2+7wAxyV5zqf9Cg1lTnQ4bX0aPc2mKd8tGhE1uRwY=\n", "new k1ZyQ0u8vJm3Xr5tWc9aLh2eOf7dSg4iPb6nAj0qTzE=\n"
	load := func(text string) *Ring {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Load(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	before, both, after := load(oldKey), load(newKey+oldKey), load(newKey)
	signature := before.Sign("text")
	if !before.Verify("text", signature) || !both.Verify("text", signature) {
		t.Error("a signature by a key of the ring is refused")
	}
	for name, ok := range map[string]bool{
		"another text":   both.Verify("other", signature),
		"a removed key":  after.Verify("text", signature),
		"no signature":   both.Verify("text", ""),
		"a part of it":   both.Verify("text", signature[:8]),
		"not base32":     both.Verify("text", "!"+signature[1:]),
		"another's text": both.Verify("text", both.Sign("text ")),
	} {
		if ok {
			t.Errorf("%s is accepted", name)
		}
	}
	if before.Sign("text") == after.Sign("text") {
		t.Error("two keys give one signature")
	}
}
