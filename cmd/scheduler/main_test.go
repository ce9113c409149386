package main

import (
	"bytes"
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
		"gossip network":   {[]string{"--gossip-allow", "10.0.0.1"}, "10.0.0.0/8"},
		"open to others":   {[]string{"--grpc-addr", ":7070", "--peer-addr", "0.0.0.0:7071", "--gossip-addr", "[::]:7946"}, "--insecure"},
		"cert without key": {[]string{"--tls-cert", file("c.pem", "x")}, "--tls-cert and --tls-key go together"},
		"no certificate":   {[]string{"--tls-cert", file("c.pem", "x"), "--tls-key", file("k.pem", "x")}, "--tls-cert"},
		"ca alone":         {[]string{"--tls-client-ca", file("a.pem", "x")}, "need --tls-cert"},
		"client auth":      {[]string{"--tls-cert", "x", "--tls-key", "y", "--tls-client-auth", "maybe"}, "none, optional or required"},
		"half of peers":    {[]string{"--peer-tls-ca", file("a.pem", "x")}, "go together"},
		"names alone":      {[]string{"--peer-tls-names", "a.example"}, "needs --peer-tls-cert"},
		"redis ca":         {[]string{"--redis-tls-ca", file("a.pem", "x")}, "--redis-tls-ca"},
		"missing secret":   {[]string{"--redis-password-file", filepath.Join(dir, "none")}, "none"},
		"sentinel secret":  {[]string{"--redis-sentinel-password-file", filepath.Join(dir, "none")}, "none"},
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

// TestPasswordsAmongArguments are found, and no others are taken for one.
func TestPasswordsAmongArguments(t *testing.T) {
	for arg, want := range map[string]bool{
		"--redis-url=redis://:s3cret@host:6379/0": true, "redis://user:s3cret@host": true, "REDISS+cluster://u:p/w@a:1,b:2": true,
		"redis+sentinel://:p@a:1,b:2/master": true,
		"redis://host:6379/0":                false, "redis://user@host:6379": false, "redis+cluster://a:1,b:2": false, "--trace-endpoint=http://u:p@host": false,
		"--redis-password-file": false, "/run/secrets/redis": false, "": false,
	} {
		if got := redisPassword.MatchString(arg); got != want {
			t.Errorf("%q: %v", arg, got)
		}
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
