package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
)

var rewrite = flag.Bool("update", false, "rewrite the golden files")

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs:\n%s\nwant:\n%s", path, got, want)
	}
}

// script runs command lines and shows them with what they print.
func (c *cluster) script(lines ...string) string {
	var b strings.Builder
	for _, line := range lines {
		code, out, errs := c.run(strings.Fields(line)...)
		b.WriteString("$ fermata " + line + "\n" + out + errs)
		if code != 0 {
			b.WriteString("exit code " + string(rune('0'+code)) + "\n")
		}
	}
	return uuids.ReplaceAllString(b.String(), "m-UUID")
}

// uuids are the request ids of manual runs, which differ each time.
var uuids = regexp.MustCompile(`m-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func TestJobsAsTables(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1m", "--http", "https://example.com/health", "--label", "team=ops", "--jitter", "none")
	c.must("jobs", "create", "flaky", "--every", "30s", "--exec", `["/bin/false"]`, "--queue", "mail", "--jitter", "none")
	c.must("jobs", "create", "report", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--handler", "report", "--payload", `{"all":true}`)
	c.must("jobs", "create", "later", "--in", "10m", "--handler", "mail")
	c.must("jobs", "create", "button", "--handler", "mail")
	c.must("jobs", "pause", "report", "--note", "until the audit is over")
	for range 3 {
		c.attempt("flaky", job.OutcomeFailed, "exit code 1: \x1b[31mno route\nto host, and a text that goes on for longer than the column")
	}
	c.attempt("ping", job.OutcomeSucceeded, "")
	c.must("jobs", "run", "button")
	c.attempt("button", job.OutcomeNone, "")
	c.pass(12 * time.Second)
	golden(t, "jobs", c.script(
		"jobs list",
		"jobs list --failing 1",
		"jobs list --queue nowhere",
		"jobs get flaky",
		"jobs get report",
		"jobs get button",
		"jobs runs flaky",
		"jobs runs ping",
	))
	golden(t, "formats", c.script("jobs get ping -o json", "jobs get ping -o yaml", "jobs runs ping -o json"))
}

func TestClusterAsTables(t *testing.T) {
	c := startCluster(t)
	golden(t, "cluster", c.script("cluster nodes", "cluster shards", "cluster queues", "cluster queues --all", "cluster workers", "cluster workers -o yaml"))
}

func TestCheckAndRepair(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1m", "--handler", "h")
	sound := c.script("cluster check")
	key := job.Key{Namespace: "default", ID: "ping"}
	at := func(name string) string {
		return strings.TrimSuffix(c.store.LockKey(c.store.ShardOf(key)), "lock") + name
	}
	// The view has shards 0 and 1: the job is broken where it can be seen.
	if c.store.ShardOf(key) > 1 {
		t.Fatal("the job is in another shard")
	}
	c.redis.ZRem(t.Context(), at("l:default/default/5"), "default/ping")
	c.redis.HSet(t.Context(), at("def"), "default/ghost", "")
	golden(t, "check", sound+c.script("cluster check", "cluster check -o yaml", "cluster check --repair", "cluster check"))
}

func TestPreview(t *testing.T) {
	c := startCluster(t)
	_, cron, _ := c.run("preview", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "3", "--after", "2026-03-27")
	_, every, _ := c.run("preview", "--every", "1m", "--backoff-max-delay", "10m", "-n", "2", "--tz", "UTC", "--start", "2026-03-01T12:00:30Z")
	var once strings.Builder
	for _, at := range []string{"2026-03-29 02:30", "2026-10-25 02:30", "2026-10-25T02:30:00+01:00"} {
		_, out, notes := c.run("preview", "--at", at, "--tz", "Europe/Berlin")
		once.WriteString(notes + out)
	}
	var calendars strings.Builder
	for _, flags := range [][]string{
		{"--calendar", "2 weeks", "--on", "MON", "--time", "09:00", "--from-day", "2026-10-12"},
		{"--calendar", "month", "--on", "31", "--time", "02:30", "--from-day", "2026-01-01", "-n", "3"},
		{"--calendar", "month", "--on", "31", "--time", "9"},
		{"--calendar", "week", "--on", "monday", "--time", "09:00"},
		{"--calendar", "fortnight", "--time", "09:00"},
		{"--calendar", "3 days"},
	} {
		_, out, errs := c.run(append([]string{"preview", "--tz", "Europe/Berlin", "-n", "4", "--after", "2026-02-01"}, flags...)...)
		calendars.WriteString("$ " + strings.Join(flags, " ") + "\n" + errs + out)
	}
	golden(t, "preview", cron+every+once.String()+calendars.String())
}

func TestChangesAndRefusals(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1m", "--handler", "h")
	got := c.script(
		"jobs create ping --every 1m --handler h",
		"jobs create ping --every 2m --handler h",
		"jobs create bad --every 1s --handler h --retry-base -5s",
		"jobs create bad --cron x --handler h --tz UTC",
		"jobs update ping --every 5m --priority 9 --backoff-max-delay 20m",
		"jobs update ping",
		"jobs update ping --priority 1 --etag old",
		"jobs pause ping --note because",
		"jobs resume ping",
		"jobs update ping --manual",
		"jobs cancel ping",
		"jobs update ping --cron @daily",
		"jobs cancel ping",
		"jobs cancel ping 1-1",
		"jobs runs ping nope",
		"jobs get nothing",
		"jobs delete ping nothing",
		"jobs delete nothing --if-exists",
		"jobs list",
		"jobs list --state sleepy",
		"jobs",
		"jobs lst",
		"jobs list -o xml",
		"jobs get",
		"preview --every 1m --at 2030-01-01",
	)
	golden(t, "changes", regexp.MustCompile(`(?s)\$ fermata jobs\nShow.*?\$`).ReplaceAllString(got, "$$ fermata jobs\n(help)\n$$"))
}

func TestUnreachableCluster(t *testing.T) {
	c := startCluster(t)
	c.address = "127.0.0.1:1"
	code, _, errs := c.run("jobs", "list", "--request-timeout", "300ms")
	if code != exitUnavailable || !strings.Contains(errs, "hint: is a node running at ADDRESS?") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
	c.address = "no..host:7070" // no name at all, which resolvers know without asking
	code, _, errs = c.run("jobs", "list", "--request-timeout", "300ms")
	if code != exitUnavailable || !strings.Contains(errs, "no..host: no such host\n") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
}

// tlsNode serves nothing, with a certificate of the authority or without TLS, and
// returns its address.
func tlsNode(t *testing.T, ours *tlstest.Authority, auth tls.ClientAuthType) string {
	t.Helper()
	security := insecure.NewCredentials()
	if ours != nil {
		p := ours.Issue(tlstest.Identity{})
		pair, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		security = credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: auth, ClientCAs: ours.Pool()})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(security))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// TestHintsAboutTLS: if the client and the node disagree on TLS, the error names the flag.
func TestHintsAboutTLS(t *testing.T) {
	t.Parallel()
	ours := tlstest.New(t, "ours")
	ca := tlstest.NewDir(t, ours.Issue(tlstest.Identity{}), ours).CA
	plain, secure, wary := tlsNode(t, nil, 0), tlsNode(t, ours, tls.NoClientCert), tlsNode(t, ours, tls.RequireAndVerifyClientCert)
	for _, tt := range []struct {
		address string
		args    []string
		want    string
	}{
		{secure, nil, "hint: is ADDRESS a node, and one with TLS? Set --tls, or --tls-ca "},
		{secure, []string{"--tls"}, "hint: name the file with the authority of the nodes' certificates by --tls-ca\n"},
		{plain, []string{"--tls"}, "hint: ADDRESS speaks without TLS: leave --tls and the other --tls flags out\n"},
		{wary, []string{"--tls-ca", ca}, "hint: the node requires a certificate: set --tls-cert and --tls-key\n"},
		{secure, []string{"--tls-ca", ca}, "hint: does ADDRESS belong to a Fermata node of this version?\n"}, // TLS is as it should be
	} {
		c := &cluster{t: t, address: tt.address}
		// A node that closes the connection may be overtaken by what is written to it.
		redistest.Eventually(t, 20*time.Second, tt.want, func(context.Context) error {
			code, _, errs := c.run(append([]string{"jobs", "list", "--request-timeout", "2s"}, tt.args...)...)
			if code == exitOK || !strings.Contains(errs, tt.want) {
				return fmt.Errorf("%v: exit code %d\n%s", tt.args, code, errs)
			}
			return nil
		})
	}
}

// goldenScript compares with a golden file what commands print on a new cluster, after others that have to succeed.
func goldenScript(t *testing.T, name string, prepare [][]string, commands ...string) {
	t.Helper()
	t.Parallel()
	c := startCluster(t)
	for _, args := range prepare {
		c.must(args...)
	}
	golden(t, name, c.script(commands...))
}
