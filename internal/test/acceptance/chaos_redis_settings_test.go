package acceptance

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestChaosUnsafeSettings: a node does not start on a Redis that would lose jobs, and
// names the reason in one line.
func TestChaosUnsafeSettings(t *testing.T) {
	skipUnlessChosen(t, "T16")
	binary := commandPath(t, "scheduler")
	plain, safe := redistest.Start(t), newRedis(t)
	evicting := redistest.Start(t, redistest.WithAOF("no"), redistest.WithConfig("maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"))
	replica := redistest.Start(t, redistest.WithConfig("replicaof", strings.Replace(safe.Addr(), ":", " ", 1)))
	for _, tt := range []struct{ name, url, durability, says string }{
		{"keys are evicted", evicting.URL(), "local", "noeviction"},
		{"nothing is kept", plain.URL(), "local", "appendonly"},
		{"no replicas", safe.URL(), "replica", "attach at least 1 replicas"},
		{"a replica", replica.URL(), "memory", "is a replica"},
		{"a database in a cluster", "redis+cluster://" + safe.Addr() + "/3", "local", "database"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startProcess(t, "node", nil, binary, "--name", "x", "--redis-url", tt.url, "--durability", tt.durability, "--redis-startup-timeout", "1s",
				"--grpc-addr", "127.0.0.1:0", "--peer-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
			select {
			case <-p.done:
			case <-time.After(patience):
				t.Fatal("it has not ended")
			}
			log, err := os.ReadFile(p.log)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(log)), "\n")
			if p.cmd.ProcessState.Success() || !strings.Contains(lines[len(lines)-1], tt.says) {
				t.Errorf("it ended with %v and logged %q, want %q in its last line", p.cmd.ProcessState, log, tt.says)
			}
		})
	}
	addFigures(&figures{ID: "T16", Name: "Redis is unsafe", Faults: map[string]int{"starts refused": 5}})
}

// TestChaosSettingsChangeWhileRunning makes Redis unsafe under a running node: within
// the half minute between two looks the node is not ready and logs why, and ready
// again when it has been put right. A Redis that has lost all is noticed the same way.
func TestChaosSettingsChangeWhileRunning(t *testing.T) {
	skipInShortForm(t, "T16")
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	n := c.startNode("a")
	c.awaitSettled()
	says := func(what string) {
		t.Helper()
		redistest.Eventually(t, patience, "the node reports: "+what, func() error {
			err := checkReady(callContext(t), n.http)
			switch {
			case what == "" || err == nil && what != "":
				if err == nil && what != "" {
					err = errors.New("it is ready")
				}
				return err
			case !strings.Contains(fetchText(t, "http://"+n.http+"/readyz"), what):
				return fmt.Errorf("it answers %v", err)
			}
			return nil
		})
	}
	setConfig(t, server, "maxmemory-policy", "allkeys-lru")
	says("noeviction")
	setConfig(t, server, "maxmemory-policy", "noeviction")
	says("")
	// Without its file, a server that is killed comes back empty.
	setConfig(t, server, "appendonly", "no")
	says("durability")
	server.Kill()
	if err := os.RemoveAll(server.Dir() + "/appendonlydir"); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	says("keyspace is gone")
	if n.hasExited() {
		t.Error("the node has ended")
	}
	c.killNode(n)
	c.startNode("a") // which creates the keyspace anew
	addFigures(&figures{ID: "T16", Name: "Redis becomes unsafe", Faults: map[string]int{"setting changed": 2, "everything lost": 1}, Bound: 40 * time.Second})
}
