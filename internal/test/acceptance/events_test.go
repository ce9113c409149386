package acceptance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/keytest"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// told counts the ends of runs that a watcher received, by job.
type told struct {
	mu    sync.Mutex
	times map[string]int // by job
	ids   map[string]int // by event
	fails int            // calls of the webhook that are still to fail
	err   error
}

func newTold() *told { return &told{times: map[string]int{}, ids: map[string]int{}} }

func (t *told) noteEvent(job, event string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.times[job]++
	t.ids[event]++
}

// checkJobsSeen fails unless each of n jobs was received.
func (t *told) checkJobsSeen(n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range n {
		if name := jobName(fmt.Sprintf("e%d", i)); t.times[name] == 0 {
			return fmt.Errorf("%d of %d were received, %s was not (%v)", len(t.times), n, name, t.err)
		}
	}
	return nil
}

// ServeHTTP makes it a webhook's endpoint.
func (t *told) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var e struct{ ID, Subject string }
	t.mu.Lock()
	t.fails--
	failing := t.fails >= 0
	t.mu.Unlock()
	if failing || err != nil || json.Unmarshal(body, &e) != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	t.noteEvent(e.Subject, e.ID)
}

// TestEventsSurviveNodeCrash: while runs end all over a cluster, the node that a watcher
// hangs on is killed. The watcher goes on at the other one and receives the end of
// each run, none twice; a webhook, whose endpoint fails at first, receives each too.
func TestEventsSurviveNodeCrash(t *testing.T) {
	runBesideOthers(t)
	endpoint, watchers := newTold(), []*told{newTold(), newTold()}
	endpoint.fails = 5
	server := httptest.NewServer(endpoint)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	key, file := filepath.Join(dir, "key"), filepath.Join(dir, "webhooks.yaml")
	text := fmt.Sprintf("webhooks:\n- {name: ops, url: '%s', insecure: true, allow-networks: [127.0.0.0/8], key-file: %s, kinds: [run.succeeded],\n"+
		"   retry: {base-delay: 100ms, max-delay: 1s, max-attempts: 100}}\n", server.URL, key)
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(keytest.Key("webhook"))), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, newRedis(t).URL(), "--events-keep", "100000", "--webhooks-file", file)
	a := c.startNode("a")
	b := c.startNode("b")
	c.awaitSettled()
	c.startWorker("w1", 20, a.grpc, b.grpc)

	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	t.Cleanup(func() { cancel(); watching.Wait() })
	cl, err := client.Dial([]string{a.grpc, b.grpc}, client.Options{Namespace: "default", Attempts: 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	// Two of them: round robin has each node carry one.
	var begun sync.WaitGroup
	for _, watched := range watchers {
		begun.Add(1)
		first := sync.OnceFunc(begun.Done)
		watching.Go(func() {
			defer first()
			for batch, err := range cl.WatchEvents(ctx, client.EventFilter{AllNamespaces: true, Kinds: []string{"run.succeeded"}}) {
				first()
				if err != nil {
					watched.mu.Lock()
					watched.err = err
					watched.mu.Unlock()
					return
				}
				for _, e := range batch.Events {
					watched.noteEvent(e.GetJob(), e.GetId())
				}
			}
		})
	}
	begun.Wait()
	const n = 60
	start := time.Now().Add(500 * time.Millisecond)
	for i := range n {
		j := newJob(behaviour{})
		j.Schedule = onceAt(start.Add(time.Duration(i) * 100 * time.Millisecond))
		a.createJob(fmt.Sprintf("e%d", i), j)
	}
	redistest.Eventually(t, patience, "a third of the events", func() error { return errors.Join(watchers[0].checkJobsSeen(n/3), watchers[1].checkJobsSeen(n/3)) })
	c.killNode(a)
	redistest.Eventually(t, patience, "all events", func() error { return errors.Join(watchers[0].checkJobsSeen(n), watchers[1].checkJobsSeen(n)) })
	redistest.Eventually(t, patience, "all events at the webhook", func() error { return endpoint.checkJobsSeen(n) })
	cancel()
	watching.Wait()
	for _, watched := range watchers {
		for event, times := range watched.ids {
			if times > 1 {
				t.Errorf("event %s was received %d times", event, times)
			}
		}
		if len(watched.ids) != n {
			t.Errorf("%d events of %d ends", len(watched.ids), n)
		}
	}
	list, err := cl.Admin().Webhooks(callContext(t))
	if err != nil || len(list) != 1 || list[0].GetUndelivered() != 0 {
		t.Errorf("%v, %v", list, err)
	}
}
