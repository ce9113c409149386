package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/test/keytest"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store and a feed of two shards.
type memory struct {
	mu      sync.Mutex
	streams [2][]job.Event
	trimmed [2]int // so many of the first are no longer kept
	locks   [2]string
	states  [2]map[string]job.WebhookProgress
	letters []job.UndeliveredEvent
	kept    int     // of the letters
	dark    [2]bool // shards whose server is away
	unknown [2]bool // shards whose end is not known yet
	moved   bool    // locks have moved, not detected yet
	changed chan struct{}
	away    error
	unsaved error // of saves
	reads   int
	ahead   int // by how many events the feed thinks the first shard to be longer
	began   time.Time
}

func newMemory() *memory {
	return &memory{
		locks: [2]string{"mine", "mine"}, states: [2]map[string]job.WebhookProgress{{}, {}}, changed: make(chan struct{}), began: time.Now(),
		kept: 1000,
	}
}

// happen appends events to a shard.
func (m *memory) happen(shard int, kinds ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, kind := range kinds {
		seq := len(m.streams[shard]) + 1
		m.streams[shard] = append(m.streams[shard], job.Event{
			Shard: shard, Place: job.Place{MS: unixtime.Milli(1000 + seq), Seq: uint64(seq)}, Kind: kind, AtMS: unixtime.Milli(1000 + seq),
			Key: job.Key{Namespace: "ns", ID: "job"}, RunID: "1-1000", Error: "no luck", Labels: map[string]string{"team": "ops"},
		})
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memory) Acquire() func() { return func() {} }

func (m *memory) lastLocked() []job.Place {
	out := make([]job.Place, 2)
	for i, s := range m.streams {
		switch {
		case m.unknown[i]:
			out[i] = job.PlaceBefore(0)
		case len(s) > 0:
			out[i] = s[len(s)-1].Place
			if i == 0 {
				out[i].Seq += uint64(m.ahead)
			}
		}
	}
	return out
}

func (m *memory) LastPlaces() ([]job.Place, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastLocked(), m.changed
}

func (m *memory) LastEvents(context.Context) ([]job.Place, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastLocked(), nil
}

func (m *memory) Events(ctx context.Context, asks []job.EventsRequest) ([]job.EventsPage, error) {
	return m.Read(ctx, asks)
}

func (m *memory) Read(_ context.Context, asks []job.EventsRequest) ([]job.EventsPage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	pages := make([]job.EventsPage, len(asks))
	for i, a := range asks {
		for _, h := range m.streams[a.Shard][m.trimmed[a.Shard]:] {
			if a.After.Before(h.Place) && len(pages[i].Events) < a.Limit {
				pages[i].Events = append(pages[i].Events, h)
			}
		}
		if list := pages[i].Events; len(list) > 0 {
			pages[i].Gap, pages[i].More = list[0].Place.Seq != a.After.Seq+1, len(list) == a.Limit
		}
	}
	return pages, m.away
}

func (m *memory) Now(context.Context, int) (unixtime.Milli, error) {
	return unixtime.Milli(5000).Add(time.Since(m.began)), nil
}

func (m *memory) WebhookProgress(_ context.Context, shards []int) (map[int]map[string]job.WebhookProgress, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[int]map[string]job.WebhookProgress{}
	var err error
	for _, shard := range shards {
		if m.dark[shard] {
			err = job.ErrUnavailable
			continue
		}
		out[shard] = maps.Clone(m.states[shard])
	}
	return out, err
}

func (m *memory) SaveWebhookProgress(_ context.Context, shard int, lock, hook string, s job.WebhookProgress, l *job.UndeliveredEvent) (evicted int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[shard] != lock || m.moved {
		return 0, job.ErrNotHolder
	}
	if m.unsaved != nil {
		return 0, m.unsaved
	}
	m.states[shard][hook] = s
	if l != nil {
		kept := *l
		kept.ID = fmt.Sprint(len(m.letters) + 1)
		m.letters = append(m.letters, kept)
		if evicted = max(len(m.letters)-m.kept, 0); evicted > 0 {
			m.letters = m.letters[evicted:]
		}
	}
	return evicted, m.away
}

func (m *memory) DeleteWebhooks(_ context.Context, shard int, hooks []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range hooks {
		delete(m.states[shard], h)
	}
	return nil
}

func (m *memory) UndeliveredEvents(_ context.Context, q job.UndeliveredQuery) ([]job.UndeliveredEvent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []job.UndeliveredEvent
	for _, l := range m.letters {
		if (q.Webhook == "" || l.Webhook == q.Webhook) && (q.Event == "" || l.Event.ID() == q.Event) {
			out = append(out, l)
		}
	}
	if !q.Oldest {
		slices.Reverse(out)
	}
	return out[:min(q.Limit, len(out))], nil
}

func (m *memory) CountUndeliveredEvents(context.Context, []string) (map[string]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[string]int{}
	for _, l := range m.letters {
		counts[l.Webhook]++
	}
	return counts, nil
}

func (m *memory) DeferUndeliveredEvent(_ context.Context, l job.UndeliveredEvent, atMS unixtime.Milli) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.letters, func(k job.UndeliveredEvent) bool { return k.ID == l.ID })
	if l = m.letters[i]; l.AtMS > atMS {
		return fmt.Errorf("it goes back from %d to %d", l.AtMS, atMS)
	}
	l.AtMS = atMS
	m.letters = append(slices.Delete(m.letters, i, i+1), l)
	return nil
}

func (m *memory) DeleteUndeliveredEvent(_ context.Context, l job.UndeliveredEvent) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.letters = slices.DeleteFunc(m.letters, func(k job.UndeliveredEvent) bool { return k.ID == l.ID })
	return nil
}

func (m *memory) held() map[int]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[int]string{}
	for shard, lock := range m.locks {
		if lock == "mine" {
			out[shard] = lock
		}
	}
	return out
}

func (m *memory) state(shard int, hook string) (job.WebhookProgress, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.states[shard][hook]
	return s, ok
}

// endpoint is an HTTP server with configurable responses.
type endpoint struct {
	*httptest.Server
	mu      sync.Mutex
	answers []int // of the next calls; then 200
	bodies  [][]byte
	heads   []http.Header
	taken   []string // ids that it took
	before  func(call int)
}

func newEndpoint(t *testing.T, answers ...int) *endpoint {
	e := &endpoint{answers: answers}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bodies, e.heads = append(e.bodies, body), append(e.heads, r.Header.Clone())
	if e.before != nil {
		call := len(e.bodies)
		e.mu.Unlock()
		e.before(call)
		e.mu.Lock()
	}
	code := http.StatusOK
	if len(e.answers) > 0 {
		code, e.answers = e.answers[0], e.answers[1:]
	}
	if code == http.StatusOK {
		e.taken = append(e.taken, r.Header.Get("Webhook-Id"))
	}
	if code == http.StatusFound {
		w.Header().Set("Location", "http://127.0.0.1:1/")
	}
	w.WriteHeader(code)
	fmt.Fprintf(w, "answer %d", code)
}

func (e *endpoint) ids() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.taken)
}

func (e *endpoint) calls() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.bodies)
}

// roundTrip stands for the network and what is beyond it.
type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(q *http.Request) (*http.Response, error) { return r(q) }

// through has events of a webhook go another way. Nothing may be on its way.
func (b *bed) through(hook string, r roundTrip) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.c.senders[hook].client.Transport = r
}

func answer(code int) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody}
}

// write makes a webhooks file, with a key beside it.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "webhooks.yaml")
	}
	key := filepath.Join(filepath.Dir(path), "key")
	if err := os.WriteFile(key, []byte("whsec_"+base64.StdEncoding.EncodeToString(testKey)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// As a whole, as an operator should: who reads it meanwhile sees the old one or the new.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

var testKey = keytest.Key("webhook")

// hookText is the entry of a webhook on this machine that is tried again soon.
func hookText(dir, name, url, more string) string {
	return fmt.Sprintf(`
- name: %s
  url: %s
  insecure: true
  allow-networks: [127.0.0.0/8]
  key-file: %s/key
  retry: {base-delay: 10ms, max-delay: 20ms, max-attempts: 4}
  %s`, name, url, dir, more)
}

// bed is a courier at work.
type bed struct {
	*memory
	c    *Deliverer
	dir  string
	path string
	log  *bytes.Buffer
	reg  *prometheus.Registry
	stop func()
}

// run makes a courier of a file; DIR in it is the file's directory.
func run(t *testing.T, m *memory, entries ...func(dir string) string) *bed {
	t.Helper()
	b := &bed{memory: m, dir: t.TempDir(), log: &bytes.Buffer{}, reg: prometheus.NewRegistry()}
	b.path = filepath.Join(b.dir, "webhooks.yaml")
	text := "webhooks:"
	for _, entry := range entries {
		text += entry(b.dir)
	}
	write(t, b.path, text)
	b.start(t)
	return b
}

func (b *bed) start(t *testing.T) {
	t.Helper()
	var err error
	b.c, err = New(Options{
		Store: b.memory, Feed: b.memory, Held: b.held, Path: b.path, Source: "urn:fermata:test", Version: "1", Reload: 20 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&locked{w: b.log}, nil)), Registerer: b.reg,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c := b.c
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	b.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.senders {
			s.close()
		}
	})
	t.Cleanup(b.stop)
}

// begun waits until webhooks have their place in both shards.
func (b *bed) begun(t *testing.T, hooks ...string) {
	t.Helper()
	redistest.Eventually(t, redistest.Patience, "the webhooks have begun", func() bool {
		for _, h := range hooks {
			for shard := range 2 {
				if _, ok := b.state(shard, h); !ok {
					return false
				}
			}
		}
		return true
	})
}

// locked lets goroutines share a writer.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// ids are those of a shard's events by their numbers.
func ids(shard int, numbers ...int) (out []string) {
	for _, n := range numbers {
		out = append(out, fmt.Sprintf("%d-%d-%d", shard, 1000+n, n))
	}
	return out
}
