package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/redisacl"
)

// TestRedisACL: the line is that of package redisacl, with the password's hash and
// without the password; names that would mean something else in it are refused.
func TestRedisACL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		a := &app{streams: streams{out: &out}, now: time.Now}
		root := a.root()
		root.SetArgs(append([]string{"redis", "acl"}, args...))
		err := root.Execute()
		return out.String(), err
	}
	text, err := run("--keyspace", "team:a", "--user", "team-a", "--password-file", file)
	if err != nil {
		t.Fatal(err)
	}
	if want := redisacl.User("team-a", redisacl.HashPassword("s3cret"), redisacl.Rules("team:a")) + "\n"; text != want || strings.Contains(text, "s3cret") {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	for _, args := range [][]string{
		{"--keyspace", "*"}, {"--keyspace", "a b"}, {"--keyspace", "a +@all"}, {"--keyspace", ""}, {"--user", "a b"}, {"--user", "a:b"},
		{"--user", "a\non"}, {"--password-file", filepath.Join(t.TempDir(), "none")},
	} {
		if text, err := run(args...); err == nil || text != "" {
			t.Errorf("%q: %q, %v", args, text, err)
		}
	}
}
