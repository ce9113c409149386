package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrongUsageIsToldApart(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown flag":     {[]string{"--no-such-flag"}, "no-such-flag"},
		"durability":       {[]string{"--durability", "forever"}, "memory, local, replica"},
		"log format":       {[]string{"--log-format", "xml"}, "json or text"},
		"drain timeout":    {[]string{"--drain-timeout", "-1s"}, "must be positive"},
		"address":          {[]string{"--grpc-addr", "nonsense"}, "host:port"},
		"gossip key":       {[]string{"--gossip-key-file", file("key", "short")}, "16, 24 or 32 bytes"},
		"missing secret":   {[]string{"--redis-password-file", filepath.Join(dir, "none")}, "none"},
		"unknown in file":  {[]string{"--config", file("c.yaml", "no-such-key: 1\n")}, "no-such-key"},
		"limits and file":  {[]string{"--client-calls", "1", "--access-file", file("a.yaml", "")}, "set limits there"},
		"negative limit":   {[]string{"--client-calls", "-1"}, "client limits"},
		"burst alone":      {[]string{"--client-burst", "1"}, "burst needs rate"},
		"token's name":     {[]string{"token", "new", "a:b"}, "a:b"},
		"no name":          {[]string{"token", "new"}, "accepts 1 arg"},
		"stray argument":   {[]string{"stray"}, "stray"},
		"dev unknown flag": {[]string{"dev", "--no-such-flag"}, "no-such-flag"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := command(nil)
			cmd.SetArgs(c.args)
			cmd.SetOut(&bytes.Buffer{})
			cmd.SetErr(&bytes.Buffer{})
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			var usage usageError
			if name != "stray argument" && !errors.As(err, &usage) {
				t.Errorf("%v is not told apart as wrong usage", err)
			}
		})
	}
}

func TestHelpNamesEveryFlagAndItsVariable(t *testing.T) {
	var out bytes.Buffer
	cmd := command(nil)
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FERMATA_REDIS_URL", "--redis-url", "--lease-ttl", "--durability", "--drain-timeout", "Exit codes"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help does not mention %s", want)
		}
	}
}

func TestGossipKeyIsBase64(t *testing.T) {
	raw := strings.Repeat("k", 32)
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString([]byte(raw))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := gossipKey(path); err != nil || string(key) != raw {
		t.Errorf("%q, %v", key, err)
	}
}
