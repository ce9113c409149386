package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/test/flagtest"
)

func TestWrongUsageHasItsExitCode(t *testing.T) {
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
		"misspelt flag":    {[]string{"--redis-ulr", "x"}, "did you mean --redis-url?"},
		"misspelt command": {[]string{"deev"}, "did you mean scheduler dev?"},
		"misspelt key":     {[]string{"--config", file("m.yaml", "redis-ulr: redis://h\n")}, "did you mean redis-url?"},
		"durability":       {[]string{"--durability", "forever"}, "memory, local, replica"},
		"log format":       {[]string{"--log-format", "xml"}, "json or text"},
		"drain timeout":    {[]string{"--drain-timeout", "-1s"}, "must be positive"},
		"address":          {[]string{"--grpc-addr", "nonsense"}, `--grpc-addr "nonsense": want host:port`},
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
		"missing secret":   {[]string{"--redis-password-file", filepath.Join(dir, "none")}, "--redis-password-file"},
		"sentinel secret":  {[]string{"--redis-sentinel-password-file", filepath.Join(dir, "none")}, "--redis-sentinel-password-file"},
		"unknown in file":  {[]string{"--config", file("c.yaml", "no-such-key: 1\n")}, "no-such-key"},
		"limits and file":  {[]string{"--client-calls", "1", "--access-file", file("a.yaml", "")}, "set limits there"},
		"negative limit":   {[]string{"--client-calls", "-1"}, "--client-calls -1"},
		"burst alone":      {[]string{"--client-burst", "1"}, "want --client-rate"},
		"token's name":     {[]string{"token", "new", "a:b"}, "a:b"},
		"no name":          {[]string{"token", "new"}, "accepts 1 arg"},
		"stray argument":   {[]string{"stray"}, "stray"},
		"dev's argument":   {[]string{"dev", "stray"}, "stray"},
		"token's argument": {[]string{"token", "stray"}, "stray"},
		"version's":        {[]string{"version", "stray"}, "stray"},
		"dev unknown flag": {[]string{"dev", "--no-such-flag"}, "no-such-flag"},
		"dev address":      {[]string{"dev", "--grpc-addr", "foo"}, `--grpc-addr "foo": want host:port`},
		"dev metrics":      {[]string{"dev", "--http-addr", "foo"}, `--http-addr "foo": want host:port`},
		"dev for others":   {[]string{"dev", "--grpc-addr", "0.0.0.0:0"}, "want an address of this host alone"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := rootCommand(nil)
			cmd.SetArgs(c.args)
			cmd.SetOut(&bytes.Buffer{})
			cmd.SetErr(&bytes.Buffer{})
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			var usage usageError
			if !errors.As(err, &usage) {
				t.Errorf("%v is not reported as wrong usage", err)
			}
		})
	}
}

// TestInvalidSettingsAreRefused before Redis is asked, with the name of the flag and
// as wrong usage.
func TestInvalidSettingsAreRefused(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for flag, values := range map[string][]string{
		"redis-pool-size":                 {"-1", "0", "999999999999"},
		"redis-timeout":                   {"-1s", "0s"},
		"redis-startup-timeout":           {"-1s"},
		"redis-url":                       {"foo", "redis://", "redis://a,b", "redis://h:0"},
		"max-payload":                     {"-3", "0", "15728641", "999999999999"},
		"validate-payloads":               {"https", "http,mine"},
		"min-interval":                    {"-1s", "0s", "1us"},
		"lease-ttl":                       {"1ms", "0s", "999ms"},
		"session-ttl":                     {"1ms", "0s", "999ms"},
		"lock-ttl":                        {"1ms", "0s", "1000.5ms"},
		"audit-max-records":               {"5", "0", "10000001"},
		"unsuccessful-runs-keep":          {"0", "999", "10000001"},
		"unsuccessful-runs-retention":     {"0s", "59m", "8761h"},
		"events-keep":                     {"999", "-1", "10000001"},
		"metrics-top-jobs":                {"-1", "51"},
		"name":                            {"a b", "a\nb", "a|b", "é"},
		"cluster":                         {strings.Repeat("a", 256)},
		"keyspace":                        {"a b"},
		"shards":                          {"-1", "4097"},
		"payload-key-file":                {none},
		"grpc-addr":                       {"foo", "127.0.0.1:65536"},
		"peer-addr":                       {"foo", "127.0.0.1:x"},
		"gossip-addr":                     {"foo", "localhost:7946"},
		"http-addr":                       {"foo"},
		"advertise-grpc":                  {"foo", ":7070", "host:0"},
		"advertise-peer":                  {"foo", ":7071"},
		"advertise-gossip":                {"foo", "host:7946", ":7946"},
		"durability-replicas":             {"-1", "0"},
		"durability-timeout":              {"-1s", "0s", "1us"},
		"client-rate":                     {"-1", "1000001", "NaN"},
		"client-burst":                    {"-1", "1"},
		"client-calls":                    {"-1"},
		"client-connections":              {"-1"},
		"namespace-jobs":                  {"-1", "1000000001"},
		"namespace-job-bytes":             {"-1", "1125899906842625"},
		"max-unauthenticated-connections": {"-1", "3"},
		"log-repeat-limit":                {"-1"},
		"drain-timeout":                   {"-1s"},
	} {
		for _, value := range values {
			cmd := rootCommand(nil)
			cmd.SetArgs([]string{"--redis-url", "redis://127.0.0.1:1", "--" + flag, value}) // where nobody is, should it be asked
			err := cmd.ExecuteContext(t.Context())
			var usage usageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), "--"+flag) {
				t.Errorf("--%s %q: %v", flag, value, err)
			}
		}
	}
}

// TestAllFaultsAreReportedTogether: nobody has to start a node five times to hear of five.
func TestAllFaultsAreReportedTogether(t *testing.T) {
	cmd := rootCommand(nil)
	cmd.SetArgs([]string{
		"--shards", "-1", "--lease-ttl", "1ms", "--redis-url", "foo", "--log-level", "loud", "--grpc-addr", "0.0.0.0:7070", "--payload-key-file", t.TempDir(),
	})
	err := cmd.ExecuteContext(t.Context())
	for _, flag := range []string{"--shards", "--lease-ttl", "--redis-url", "--log-level", "--grpc-addr", "--payload-key-file"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%v does not name %s", err, flag)
		}
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
		if got := redisPasswordHelp.MatchString(arg); got != want {
			t.Errorf("%q: %v", arg, got)
		}
	}
}

func TestHelpNamesEveryFlagAndItsVariable(t *testing.T) {
	var out bytes.Buffer
	cmd := rootCommand(nil)
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

func TestNoUsageHasBackquotes(t *testing.T) { flagtest.NoBackquotes(t, rootCommand(nil)) }

// TestFilesOfFlagsAreGuarded: see flagtest.
func TestFilesOfFlagsAreGuarded(t *testing.T) {
	flagtest.FilesAreGuarded(t, rootCommand(nil), map[string]string{
		"scheduler --access-file":                  "--access-file PATH",
		"scheduler --audit-key-file":               "--audit-key-file PATH",
		"scheduler --config":                       "--config PATH",
		"scheduler --defaults-file":                "--defaults-file PATH",
		"scheduler --gossip-key-file":              "--gossip-key-file PATH",
		"scheduler --payload-key-file":             "--payload-key-file PATH",
		"scheduler --peer-tls-ca":                  "--peer-tls-cert c --peer-tls-key k --peer-tls-ca PATH",
		"scheduler --peer-tls-cert":                "--peer-tls-cert PATH --peer-tls-key k --peer-tls-ca c",
		"scheduler --peer-tls-key":                 "--peer-tls-cert c --peer-tls-key PATH --peer-tls-ca c",
		"scheduler --redis-password-file":          "--redis-password-file PATH",
		"scheduler --redis-sentinel-password-file": "--redis-sentinel-password-file PATH",
		"scheduler --redis-tls-ca":                 "--redis-url rediss://127.0.0.1:1 --redis-tls-ca PATH",
		"scheduler --redis-tls-cert":               "--redis-url rediss://127.0.0.1:1 --redis-tls-cert PATH --redis-tls-key k",
		"scheduler --redis-tls-key":                "--redis-url rediss://127.0.0.1:1 --redis-tls-cert c --redis-tls-key PATH",
		"scheduler --tls-cert":                     "--tls-cert PATH --tls-key k",
		"scheduler --tls-client-ca":                "--tls-cert c --tls-key k --tls-client-ca PATH",
		"scheduler --tls-key":                      "--tls-cert c --tls-key PATH",
		"scheduler dev --config":                   "dev --config PATH",
	}, map[string]string{
		"scheduler --peer-tls-names": "names, of no file",
		"scheduler --webhooks-file":  "refused once Redis has answered: node TestFilesThatOthersMayWriteStopTheStart",
		"scheduler dev --log-file":   "it is written",
		"scheduler dev --redis":      "a program of the developer's choice, and no file that is read",
	}, func(args ...string) string {
		cmd := rootCommand(nil)
		cmd.SetArgs(args)
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			return err.Error()
		}
		return ""
	})
}

func TestDurationsHaveDays(t *testing.T) { flagtest.DurationsHaveDays(t, rootCommand(nil)) }
