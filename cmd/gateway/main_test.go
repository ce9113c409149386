package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fermata-io/fermata/internal/test/flagtest"
	"github.com/fermata-io/fermata/internal/test/nodetest"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

var runner nodetest.Runner

func TestMain(m *testing.M) {
	runner.M = m
	os.Exit(runner.Run())
}

func TestWrongUsage(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"unknown flag":       {[]string{"--nonsense"}, "--nonsense"},
		"argument":           {[]string{"argument"}, "argument"},
		"misspelt command":   {[]string{"verison"}, "did you mean gateway version?"},
		"bare host":          {[]string{"--scheduler", "localhost"}, "--scheduler"},
		"no address":         {[]string{"--rest-addr", "foo"}, `--rest-addr "foo": want host:port`},
		"plain text":         {[]string{"--rest-addr", "0.0.0.0:7073"}, "--insecure if TLS ends in front"},
		"key alone":          {[]string{"--rest-tls-key", empty}, "--rest-tls-cert and --rest-tls-key go together"},
		"no certificate":     {[]string{"--rest-tls-cert", empty, "--rest-tls-key", empty}, "--rest-tls-cert"},
		"authority":          {[]string{"--tls-ca", empty}, "--tls-ca"},
		"no calls":           {[]string{"--max-calls", "0"}, "--max-calls 0: want more than 0"},
		"no streams":         {[]string{"--max-event-streams", "-1"}, "max-event-streams"},
		"no callers":         {[]string{"--max-callers", "0"}, "--max-callers"},
		"issuer without URL": {[]string{"--oidc-issuer", "https://login.example", "--oidc-client-id", "c"}, "--console-url"},
		"issuer in the clear": {[]string{"--oidc-issuer", "http://login.example", "--oidc-client-id", "c", "--console-url", "https://c.example"},
			"--oidc-issuer"},
		"client alone":     {[]string{"--oidc-client-id", "c"}, "--oidc-issuer"},
		"trace of nothing": {[]string{"--console-trace-url", "https://traces.example/{trace}"}, "--console-trace-url"},
		"logs of nothing":  {[]string{"--console-logs-url", "javascript:{run}"}, "--console-logs-url"},
		"URL of nothing":   {[]string{"--console-url", "fermata.example"}, "--console-url"},
		"session key":      {[]string{"--console-session-key-file", empty}, "has 0 bytes, want 32"},
		"base path":        {[]string{"--base-path", "ops"}, "base path"},
		"drain timeout":    {[]string{"--drain-timeout", "0s"}, "--drain-timeout"},
		"log level":        {[]string{"--log-level", "loud"}, `"loud"`},
		"missing file":     {[]string{"--config", "/nonexistent"}, "/nonexistent"},
		"proxy":            {[]string{"--trusted-proxies", "10.0.0.1"}, `--trusted-proxies "10.0.0.1": want a network`},
	} {
		var stderr bytes.Buffer
		stop := make(chan os.Signal, 1)
		stop <- syscall.SIGTERM // it must not go on if it starts
		if code := runCommand(test.args, stop, io.Discard, &stderr); code != 2 {
			t.Errorf("%s: exit code %d", name, code)
		}
		if !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: said %q, want %q", name, &stderr, test.want)
		}
	}
}

func TestNoUsageHasBackquotes(t *testing.T) { flagtest.NoBackquotes(t, rootCommand()) }

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestServeAndStop: the gateway serves, is ready while a node answers, and ends event streams when it stops.
func TestServeAndStop(t *testing.T) {
	signals := make(chan os.Signal, 2)
	var log lockedBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- runCommand([]string{"--scheduler", runner.Address(), "--rest-addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"},
			signals, io.Discard, &log)
	}()
	url := regexp.MustCompile(`url=(\S+)`)
	metrics := regexp.MustCompile(`serving metrics.* address=(\S+)`)
	redistest.Eventually(t, redistest.Patience, "addresses", func() bool { return url.MatchString(log.String()) && metrics.MatchString(log.String()) })
	base, ops := url.FindStringSubmatch(log.String())[1], "http://"+metrics.FindStringSubmatch(log.String())[1]
	for _, page := range []struct{ address, want string }{
		{base + "/v1/whoami", `"anonymous"`}, {base + "/", "<title>Fermata</title>"}, {ops + "/healthz", ""}, {ops + "/readyz", ""},
		{ops + "/metrics", "fermata_gateway_callers 1"}, // the one that has asked who it is
	} {
		redistest.Eventually(t, redistest.Patience, page.address, func() bool {
			resp, err := http.Get(page.address)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			return err == nil && resp.StatusCode == http.StatusOK && strings.Contains(string(text), page.want)
		})
	}
	stream, err := http.Get(base + "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	signals <- syscall.SIGTERM
	text, err := io.ReadAll(stream.Body)
	if err != nil || !strings.Contains(string(text), "resumeToken") || !strings.Contains(string(text), "this gateway stops") {
		t.Errorf("the stream ended with %v: %s", err, text)
	}
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d:\n%s", code, log.String())
	}
}

func TestDurationsHaveDays(t *testing.T) { flagtest.DurationsHaveDays(t, rootCommand()) }
