package acceptance

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
)

// flagsOf are the TLS flags of a worker or of the command line.
func flagsOf(d *tlstest.Dir) []string {
	return []string{"--tls-ca", d.CA, "--tls-cert", d.Cert, "--tls-key", d.Key}
}

// TestTLSBetweenAllProcesses runs two nodes, a worker and the command line on TLS in all
// directions, and replaces their certificates on disk meanwhile.
func TestTLSBetweenAllProcesses(t *testing.T) {
	runBesideOthers(t)
	ours := tlstest.New(t, "ours")
	role := func(name string) tlstest.Identity {
		return tlstest.Identity{Name: name, URIs: []string{"spiffe://fermata.example/" + name}}
	}
	nodes := tlstest.NewDir(t, ours.Issue(role("node")), ours)
	workers := tlstest.NewDir(t, ours.Issue(role("worker")), ours)
	people := tlstest.NewDir(t, ours.Issue(role("person")), ours)
	keys := filepath.Join(t.TempDir(), "gossip")
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	if err := os.WriteFile(keys, []byte(base64.StdEncoding.EncodeToString(key)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, newRedis(t).URL(), "--gossip-key-file", keys, "--gossip-allow", "127.0.0.0/8",
		"--tls-cert", nodes.Cert, "--tls-key", nodes.Key, "--tls-client-ca", nodes.CA,
		"--peer-tls-cert", nodes.Cert, "--peer-tls-key", nodes.Key, "--peer-tls-ca", nodes.CA)
	mine := ours.Client(ours.Issue(role("test")))
	c.secured = credentials.NewTLS(mine)
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()

	var hits atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	t.Cleanup(target.Close)
	binary := commandPath(t, "worker")
	work := func(name string, addr string) *process {
		return startProcess(t, name, nil, binary, append(flagsOf(workers), "--scheduler", addr, "--http-allow", "127.0.0.0/8", "--log-format", "json")...)
	}
	w := work("worker-1", b.grpc)
	if code, out := runAsPerson(t, append(flagsOf(people), "--address", a.grpc+","+b.grpc, "jobs", "create", "j", "--every", "1s", "--http", target.URL)...); code != 0 {
		t.Fatal(out)
	}
	runs := func(what string) {
		t.Helper()
		before := hits.Load()
		redistest.Eventually(t, patience, what, func() error {
			if n := hits.Load() - before; n < 2 {
				return fmt.Errorf("%d runs", n)
			}
			return nil
		})
	}
	runs("the job runs")

	served := certificateSerial(t, a.grpc, mine)
	nodes.Replace(ours.Issue(role("node")), ours)
	workers.Replace(ours.Issue(role("worker")), ours)
	people.Replace(ours.Issue(role("person")), ours)
	redistest.Eventually(t, patience, "the new certificate is served", func() error {
		if certificateSerial(t, a.grpc, mine) == served {
			return errors.New("it is the old one")
		}
		return nil
	})
	runs("the job goes on")
	w.terminate(20 * time.Second)
	work("worker-2", a.grpc)
	runs("a worker that came later runs it")
	if code, out := runAsPerson(t, append(flagsOf(people), "--address", b.grpc, "cluster", "nodes", "-o", "json")...); code != 0 || strings.Contains(out, `"unreachable": true`) {
		t.Errorf("%d: %s", code, out)
	}
	for what, args := range map[string][]string{
		"plain text":      nil,
		"no certificate":  {"--tls-ca", people.CA},
		"wrong authority": {"--tls-cert", people.Cert, "--tls-key", people.Key, "--tls-ca", tlstest.NewDir(t, tlstest.Pair{}, tlstest.New(t, "theirs")).CA},
	} {
		if code, out := runAsPerson(t, append(args, "--address", a.grpc, "--request-timeout", "1s", "jobs", "list")...); code != 5 {
			t.Errorf("%s: exit code %d, %s", what, code, out)
		}
	}
}

// runAsPerson runs one command line.
func runAsPerson(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	return personIn(t, nil, args...)
}

// personIn is person with more in the environment.
func personIn(t *testing.T, env []string, args ...string) (code int, output string) {
	t.Helper()
	cmd := exec.Command(commandPath(t, "fermata"), args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// certificateSerial is that of the certificate that is served at an address.
func certificateSerial(t *testing.T, addr string, c *tls.Config) string {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, c)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}
