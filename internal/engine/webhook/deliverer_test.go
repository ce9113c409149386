package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/mask"
	"github.com/fermata-io/fermata/internal/test/keytest"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestFailedEventIsRetriedInOrder: a failed event is retried before the events behind it. All are delivered in
// order, once each; each is a CloudEvent and signed.
func TestFailedEventIsRetriedInOrder(t *testing.T) {
	e := newEndpoint(t, 500, 503, 302)
	b := run(t, newMemory(), func(dir string) string { return hookText(dir, "ops", e.URL+"/in?secret=1", "kinds: [run.*]") })
	b.begun(t, "ops")
	b.happen(0, job.KindRunDead, job.KindJobPaused, job.KindRunSucceeded, job.KindRunMissed)
	redistest.Eventually(t, redistest.Patience, "all are delivered", func() bool { return slices.Equal(e.ids(), ids(0, 1, 3, 4)) })
	for i := range 4 {
		if got := e.heads[i].Get("Webhook-Id"); got != ids(0, 1)[0] {
			t.Errorf("call %d is about %s", i, got)
		}
	}
	head, body := e.heads[3], e.bodies[3]
	at, err := strconv.ParseInt(head.Get("Webhook-Timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > time.Minute {
		t.Errorf("timestamp %q", head.Get("Webhook-Timestamp"))
	}
	mac := hmac.New(sha256.New, testKey)
	mac.Write([]byte(head.Get("Webhook-Id") + "." + head.Get("Webhook-Timestamp") + "."))
	mac.Write(body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); head.Get("Webhook-Signature") != want {
		t.Errorf("signature %q, want %q", head.Get("Webhook-Signature"), want)
	}
	var event map[string]any
	if err := json.Unmarshal(body, &event); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"specversion": "1.0", "id": ids(0, 1)[0], "source": "urn:fermata:test", "type": "io.fermata.run.dead",
		"subject": "namespaces/ns/jobs/job", "time": "1970-01-01T00:00:01.001Z", "datacontenttype": "application/json",
		"correlationid": job.Correlation(job.Key{Namespace: "ns", ID: "job"}, "1-1000"),
	} {
		if event[name] != want {
			t.Errorf("%s is %v, want %q", name, event[name], want)
		}
	}
	if data := event["data"].(map[string]any); data["job_id"] != "job" || data["error"] != "no luck" || data["run_id"] != "1-1000" {
		t.Errorf("data %v", data)
	}
	if head.Get("Content-Type") != "application/cloudevents+json; charset=utf-8" {
		t.Errorf("content type %q", head.Get("Content-Type"))
	}
	redistest.Eventually(t, redistest.Patience, "its place is stored", func() bool { s, _ := b.state(0, "ops"); return s.After.Seq == 4 && s.Attempts == 0 })
	for outcome, want := range map[string]float64{delivered: 3, retried: 3, dead: 0} {
		if got := testutil.ToFloat64(b.c.metrics.deliveries.WithLabelValues("ops", outcome)); got != want {
			t.Errorf("%v %s, want %v", got, outcome, want)
		}
	}
	b.stop()
	if text := b.log.String(); strings.Contains(text, "secret=1") {
		t.Errorf("the log shows the query: %s", text)
	}
}

// TestRefusedAndExhaustedEventsBecomeDeadLetters: a refused event, and one that fails as often as its policy
// allows, are kept with the reason. The events behind them are delivered. Both can be redelivered.
func TestRefusedAndExhaustedEventsBecomeDeadLetters(t *testing.T) {
	e := newEndpoint(t, 422, 500, 500, 500, 500)
	b := run(t, newMemory(), func(dir string) string { return hookText(dir, "ops", e.URL, "") })
	b.begun(t, "ops")
	b.happen(1, job.KindRunDead, job.KindRunDead, job.KindRunDead)
	redistest.Eventually(t, redistest.Patience, "the last one is delivered", func() bool { return slices.Equal(e.ids(), ids(1, 3)) })
	letters, err := b.c.UndeliveredEvents(t.Context(), "ops", 10)
	if err != nil || len(letters) != 2 || letters[1].Reason != "status 422: answer 422" || letters[1].Attempts != 1 || letters[0].Attempts != 4 {
		t.Fatalf("%+v, %v", letters, err)
	}
	redistest.Eventually(t, redistest.Patience, "its place is stored", func() bool {
		status, err := b.c.Statuses(t.Context())
		return err == nil && len(status) == 1 && status[0].Undelivered == 2 && status[0].Behind == 0
	})
	if r, err := b.c.Redeliver(t.Context(), "ops", ids(1, 2)[0], false); err != nil || r != (job.Redelivery{Delivered: 1, Remaining: 1}) {
		t.Errorf("%+v, %v", r, err)
	}
	e.mu.Lock()
	e.answers = []int{500}
	e.mu.Unlock()
	if r, err := b.c.Redeliver(t.Context(), "ops", "", false); err != nil || r != (job.Redelivery{Failure: "status 500: answer 500", Remaining: 1}) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := b.c.Redeliver(t.Context(), "ops", "", false); err != nil || r != (job.Redelivery{Delivered: 1}) {
		t.Errorf("%+v, %v", r, err)
	}
	if !slices.Equal(e.ids(), ids(1, 3, 2, 1)) {
		t.Errorf("told: %v", e.ids())
	}
	if _, err := b.c.Redeliver(t.Context(), "other", "", false); err == nil {
		t.Error("there is no such webhook")
	}
}

// TestRedeliveryOfRefusedEvents: what the endpoint will never take is passed over, comes
// last from then on, and is deleted if that is wanted; a failure that may pass ends it.
func TestRedeliveryOfRefusedEvents(t *testing.T) {
	e := newEndpoint(t, 422, 413, 422, 422)
	b := run(t, newMemory(), func(dir string) string { return hookText(dir, "ops", e.URL, "") })
	b.begun(t, "ops")
	b.happen(1, slices.Repeat([]string{job.KindRunDead}, 5)...)
	redistest.Eventually(t, redistest.Patience, "the last one is delivered", func() bool { return slices.Equal(e.ids(), ids(1, 5)) })
	redeliver := func(drop bool, want job.Redelivery, left []string, answers ...int) {
		t.Helper()
		e.mu.Lock()
		e.answers = answers
		e.mu.Unlock()
		if r, err := b.c.Redeliver(t.Context(), "ops", "", drop); err != nil || r != want {
			t.Errorf("%+v, %v", r, err)
		}
		letters, err := b.c.UndeliveredEvents(t.Context(), "ops", 10)
		var got []string
		for _, l := range slices.Backward(letters) {
			got = append(got, l.Event.ID())
		}
		if err != nil || !slices.Equal(got, left) {
			t.Errorf("%v are left, %v", got, err)
		}
	}
	redeliver(false, job.Redelivery{Delivered: 1, Failure: "status 500: answer 500", Refused: 1, Refusal: "status 422: answer 422", Remaining: 3},
		ids(1, 3, 4, 1), 422, 200, 500)
	redeliver(false, job.Redelivery{Delivered: 1, Refused: 2, Refusal: "status 413: answer 413", Remaining: 2}, ids(1, 3, 1), 413, 200, 422)
	redeliver(true, job.Redelivery{Delivered: 1, Refused: 1, Refusal: "status 415: answer 415"}, nil, 200, 415)
}

// TestEvictedDeadLettersAreCounted. The status of a webhook never shows the path of its endpoint, which may be a
// credential.
func TestEvictedDeadLettersAreCounted(t *testing.T) {
	e := newEndpoint(t, 422, 422, 422)
	m := newMemory()
	m.kept = 2
	b := run(t, m, func(dir string) string { return hookText(dir, "ops", e.URL+"/services/T0/B0/credential?key=1", "") })
	b.begun(t, "ops")
	b.happen(0, slices.Repeat([]string{job.KindRunDead}, 4)...)
	redistest.Eventually(t, redistest.Patience, "the last one is delivered", func() bool { return slices.Equal(e.ids(), ids(0, 4)) })
	if n := testutil.ToFloat64(b.c.metrics.evicted.WithLabelValues("ops")); n != 1 {
		t.Errorf("%v are counted", n)
	}
	status, err := b.c.Statuses(t.Context())
	if err != nil || len(status) != 1 || status[0].Undelivered != 2 || status[0].URL != e.URL {
		t.Errorf("%+v, %v", status, err)
	}
	if letters, err := b.c.UndeliveredEvents(t.Context(), "no such:name", 10); err != nil || len(letters) != 0 {
		t.Errorf("%v, %v", letters, err)
	}
}

// TestNextHolderContinuesDelivery: from the place that is stored, with the tries that there were;
// what was trimmed meanwhile is counted, and one webhook's trouble is not another's.
func TestNextHolderContinuesDelivery(t *testing.T) {
	m := newMemory()
	m.happen(0, slices.Repeat([]string{job.KindRunDead}, 10)...)
	m.trimmed[0] = 5
	m.states[0]["slow"] = job.WebhookProgress{After: job.Place{MS: 1002, Seq: 2}, Attempts: 3, FirstMS: 4000, RetryMS: 4500}
	m.states[0]["fine"] = job.WebhookProgress{After: job.Place{MS: 1009, Seq: 9}}
	slow, fine := newEndpoint(t, slices.Repeat([]int{500}, 6)...), newEndpoint(t)
	b := run(t, m, func(dir string) string { return hookText(dir, "slow", slow.URL, "") },
		func(dir string) string { return hookText(dir, "fine", fine.URL, "") })
	redistest.Eventually(t, redistest.Patience, "both are delivered", func() bool {
		return slices.Equal(fine.ids(), ids(0, 10)) && slices.Equal(slow.ids(), ids(0, 7, 8, 9, 10))
	})
	if lost := testutil.ToFloat64(b.c.metrics.lost.WithLabelValues("slow")); lost != 3 {
		t.Errorf("%v are counted as lost", lost)
	}
	m.mu.Lock()
	m.locks[0] = "another node's"
	m.mu.Unlock()
	m.happen(0, job.KindRunDead)
	m.happen(1, job.KindRunDead)
	redistest.Eventually(t, redistest.Patience, "the other shard's event is delivered", func() bool { return slices.Contains(fine.ids(), ids(1, 1)[0]) })
	b.stop()
	if s, _ := m.state(0, "fine"); s.After.Seq != 10 {
		t.Errorf("the place in a lost shard was moved to %v", s.After)
	}
}

// TestChangedFileIsReloaded: webhooks come and go, one that has not changed is not disturbed,
// and a file at fault changes nothing.
func TestChangedFileIsReloaded(t *testing.T) {
	one, two := newEndpoint(t), newEndpoint(t)
	b := run(t, newMemory(), func(dir string) string { return hookText(dir, "one", one.URL, "") })
	b.begun(t, "one")
	before := b.c.findSender("one")
	write(t, b.path, "webhooks:"+hookText(b.dir, "one", one.URL, "")+hookText(b.dir, "two", two.URL, ""))
	b.begun(t, "one", "two")
	if b.c.findSender("one") != before {
		t.Error("the one that has not changed was made anew")
	}
	b.happen(0, job.KindRunDead)
	redistest.Eventually(t, redistest.Patience, "both are delivered", func() bool { return len(one.ids()) == 1 && len(two.ids()) == 1 })
	write(t, b.path, "webhooks: [{name: UPPER}]")
	redistest.Eventually(t, redistest.Patience, "the fault is logged", func() bool { return b.c.LoadError() != nil })
	b.happen(0, job.KindRunDead)
	redistest.Eventually(t, redistest.Patience, "both are delivered as before", func() bool { return len(one.ids()) == 2 && len(two.ids()) == 2 })
	write(t, b.path, "webhooks:"+hookText(b.dir, "two", two.URL, ""))
	redistest.Eventually(t, redistest.Patience, "one is gone", func() bool { return b.c.findSender("one") == nil })
	b.happen(0, job.KindRunDead)
	redistest.Eventually(t, redistest.Patience, "the other is delivered", func() bool { return len(two.ids()) == 3 })
	if len(one.ids()) != 2 {
		t.Error("the one that has gone was told")
	}
}

// TestWebhookChangesDuringDelivery: when its key is replaced in the midst of a page, what is on
// its way is the last that goes by the old one, whether it is taken or not; a failure of it
// puts nothing off by the old policy.
func TestWebhookChangesDuringDelivery(t *testing.T) {
	for _, answer := range []int{http.StatusOK, http.StatusInternalServerError} {
		const events, held = 200, 5
		e := newEndpoint(t, append(slices.Repeat([]int{http.StatusOK}, held-1), answer)...)
		reached, release := make(chan struct{}), make(chan struct{})
		e.before = func(call int) {
			if call == held {
				close(reached)
				<-release
			}
		}
		entry := func(dir string) string {
			return strings.ReplaceAll(hookText(dir, "ops", e.URL, ""), "base-delay: 10ms, max-delay: 20ms", "base-delay: 1h, max-delay: 1h")
		}
		b := run(t, newMemory(), entry)
		b.begun(t, "ops")
		before := b.c.findSender("ops")
		b.happen(0, slices.Repeat([]string{job.KindRunDead}, events)...)
		<-reached
		if err := os.WriteFile(b.dir+"/key", []byte(base64.StdEncoding.EncodeToString(keytest.Key("new"))), 0o600); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, redistest.Patience, "the new key is in force", func() bool { return b.c.findSender("ops") != before })
		close(release)
		redistest.Eventually(t, redistest.Patience, "all are delivered", func() bool { return len(e.ids()) == events })
		e.mu.Lock()
		for i, head := range e.heads {
			at, err := strconv.ParseInt(head.Get("Webhook-Timestamp"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			old := head.Get("Webhook-Signature") == signBody([][]byte{testKey}, head.Get("Webhook-Id"), time.Unix(at, 0), e.bodies[i])
			if old != (i < held) {
				t.Errorf("%d: call %d is signed by the old key: %v", answer, i+1, old)
			}
		}
		e.mu.Unlock()
		b.stop()
	}
}

// TestPrivateAddressesAreRefused: addresses that are not public are not connected to unless the file permits
// them, whatever their name.
func TestPrivateAddressesAreRefused(t *testing.T) {
	e := newEndpoint(t)
	port := e.URL[strings.LastIndexByte(e.URL, ':')+1:]
	for _, c := range []struct{ url, allow string }{
		{"http://127.0.0.1:" + port, "10.0.0.0/8"}, {"http://localhost:" + port, "10.0.0.0/8"}, {"http://169.254.169.254/latest", "169.254.0.0/16"},
	} {
		path := write(t, "", "")
		dir := strings.TrimSuffix(path, "/webhooks.yaml")
		write(t, path, "webhooks:"+strings.ReplaceAll(hookText(dir, "ops", c.url, ""), "127.0.0.0/8", c.allow))
		hooks, err := loadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s := newSender(hooks[0], "urn:x", "1", slog.New(slog.DiscardHandler))
		f := s.postEvent(t.Context(), &job.Event{Kind: job.KindRunDead})
		s.close()
		if f == nil || !strings.Contains(f.reason, "not allowed here") || f.refused {
			t.Errorf("%s: %+v", c.url, f)
		}
	}
	if e.calls() != 0 {
		t.Error("it was reached")
	}
}

// TestRedirectsAndProxiesAreNotUsed: an endpoint cannot send them on, nor can a proxy of the
// environment, which would connect in the node's stead.
func TestRedirectsAndProxiesAreNotUsed(t *testing.T) {
	elsewhere := newEndpoint(t)
	for _, code := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		lead := httptest.NewServer(http.RedirectHandler(elsewhere.URL, code))
		path := write(t, "", "")
		write(t, path, "webhooks:"+hookText(strings.TrimSuffix(path, "/webhooks.yaml"), "ops", lead.URL, ""))
		hooks, err := loadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s := newSender(hooks[0], "urn:x", "1", slog.New(slog.DiscardHandler))
		if f := s.postEvent(t.Context(), &job.Event{Kind: job.KindRunDead}); f == nil || !strings.Contains(f.reason, fmt.Sprint(code)) || f.refused {
			t.Errorf("%d: %+v", code, f)
		}
		if s.client.Transport.(*http.Transport).Proxy != nil {
			t.Error("there is a proxy")
		}
		s.close()
		lead.Close()
	}
	if elsewhere.calls() != 0 {
		t.Error("it was reached")
	}
}

// TestInvalidWebhooksFile: each error names its webhook, and no key is shown.
func TestInvalidWebhooksFile(t *testing.T) {
	path := write(t, "", "")
	dir := strings.TrimSuffix(path, "/webhooks.yaml")
	if err := os.WriteFile(dir+"/short", []byte("c2VjcmV0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/zeros", []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"webhooks: [{name: a, url: 'https://x/', key-file: DIR/zeros}]":                                                "could be guessed",
		"webhooks: [{name: a, url: 'https://x/'}]":                                                                     "key-file",
		"webhooks: [{name: a, url: 'http://x/', key-file: DIR/key}]":                                                   "insecure",
		"webhooks: [{name: a, url: 'https://u:p@x/', key-file: DIR/key}]":                                              "url",
		"webhooks: [{name: a, url: 'https://x/', key-file: DIR/short}]":                                                "24 to 64 bytes",
		"webhooks: [{name: a, url: 'https://x/', key-file: DIR/key, kinds: [run.dade]}]":                               "run.dade",
		"webhooks: [{name: a, url: 'https://x/', key-file: DIR/key, retry: {multiplier: 0.5}}]":                        "multiplier",
		"webhooks: [{name: a, url: 'https://x/', key-file: DIR/key, timeout: 1h}]":                                     "timeout",
		"webhooks: [{name: a, url: 'https://x/', key-file: DIR/key, timeout: 2w}]":                                     "timeout: is 336h0m0s",
		"webhooks: [{name: a, url: 'https://x/', key-file: DIR/key, timeout: soon}]":                                   "want a duration such as 30s or 7d, got `soon`",
		"webhooks: [{name: a, url: 'https://x/', key-file: DIR/key, colour: red}]":                                     "colour",
		"webhooks: [{name: a, url: 'https://x/', key-file: DIR/key, allow-networks: [everything]}]":                    "allow-networks",
		"webhooks: [{name: a, url: 'https://x/', key-file: DIR/key}, {name: a, url: 'https://x/', key-file: DIR/key}]": "twice",
		"webhooks: []\n---\nwebhooks: [{name: a, url: 'https://x/', key-file: DIR/key}]":                               "more than one document",
	} {
		write(t, path, strings.ReplaceAll(text, "DIR", dir))
		_, err := loadFile(path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, good := range []string{"", "webhooks: []", "webhooks: [{name: a, url: 'https://x/', key-file: " + dir + "/key}]"} {
		write(t, path, good)
		if _, err := loadFile(path); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "99999": time.Hour,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:00:05 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestDeadLetterThatCannotBeStoredIsRetried: its event is tried once more, and its policy has not begun
// anew.
func TestDeadLetterThatCannotBeStoredIsRetried(t *testing.T) {
	m := newMemory()
	m.happen(0, job.KindRunDead)
	m.away = errors.New("away")
	metrics, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &Deliverer{options: Options{Store: m, Logger: slog.New(slog.DiscardHandler)}, metrics: metrics}
	before := job.WebhookProgress{After: job.Place{MS: 1000}, Attempts: 3, FirstMS: 4000}
	retry := DefaultRetry()
	retry.MaxAttempts = 4
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d := &delivery{
		c: c, s: &sender{hook: &hookConfig{retry: retry}},
		l: &hookLane{hook: "ops", lock: "mine", state: before, ctx: ctx, cancel: cancel},
	}
	if d.handleFailure(&m.streams[0][0], &deliveryFailure{reason: "status 500"}) || len(m.letters) != 1 {
		t.Fatalf("%d letters", len(m.letters))
	}
	if d.l.state != before {
		t.Errorf("the lane is at %+v, was at %+v", d.l.state, before)
	}
}

// TestStatesOfRemovedWebhooksAreDeleted: they are kept for those who come back, and forgotten
// in the end.
func TestStatesOfRemovedWebhooksAreDeleted(t *testing.T) {
	m := newMemory()
	month := stateRetention.Milliseconds()
	m.states[0]["gone"] = job.WebhookProgress{UpdatedMS: unixtime.Milli(4000 - month)}
	m.states[0]["away"] = job.WebhookProgress{UpdatedMS: unixtime.Milli(60_000 - month)}
	b := run(t, m, func(dir string) string { return hookText(dir, "ops", "http://127.0.0.1:1/", "") })
	b.begun(t, "ops")
	redistest.Eventually(t, redistest.Patience, "one is forgotten", func() bool { _, there := b.state(0, "gone"); return !there })
	if _, there := b.state(0, "away"); !there {
		t.Error("one that may come back is forgotten")
	}
}

// TestReasonsHideWholeSecretsOnly: what an endpoint takes for a part of the URL's secret is shown alike whether that is
// right, wherever its answer ends. The secret is never shown in part.
func TestReasonsHideWholeSecretsOnly(t *testing.T) {
	const segment = "Zx93kfLq20vbTT71rWc4"
	var said string
	var length int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(length))
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, said)
	}))
	defer s.Close()
	path := write(t, "", "")
	write(t, path, "webhooks:"+hookText(strings.TrimSuffix(path, "/webhooks.yaml"), "ops", s.URL+"/"+segment, ""))
	hooks, err := loadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sender := newSender(hooks[0], "urn:x", "1", slog.New(slog.DiscardHandler))
	defer sender.close()
	reason := func(text string, more int) string {
		said, length = text, len(text)+more
		return sender.postEvent(t.Context(), &job.Event{Kind: job.KindRunDead}).reason
	}
	filler := strings.Repeat("~", maxExcerpt)
	for k := 1; k < len(segment); k++ {
		for _, fill := range []string{"=", filler[:maxExcerpt-k], filler[:maxExcerpt-1]} {
			for _, more := range []int{0, 1} {
				right, wrong := reason(fill+segment[:k], more), reason(fill+segment[:k-1]+"!", more)
				if len(right) != len(wrong) || strings.Contains(right, mask.Mark) {
					t.Errorf("%d characters: a right guess became %q, a wrong one %q", k, right, wrong)
				}
			}
		}
		for _, text := range []string{filler[:maxExcerpt-k] + segment + filler, filler[:20] + segment[:k]} {
			if got := reason(text, 1); strings.Contains(got, "~Z") {
				t.Errorf("%q became %q", text, got)
			}
		}
	}
}

// TestReasonsHideTheURL: the path and the query of an endpoint's URL are often a credential. They are not shown
// even if the endpoint repeats them in its response, in any encoding.
func TestReasonsHideTheURL(t *testing.T) {
	const segment, key = "Zx93kfLq20vbTT71rWc4", "s3cr3t/k+ey"
	say := func(r *http.Request) string { return "" }
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, say(r))
	}))
	defer s.Close()
	path := write(t, "", "")
	write(t, path, "webhooks:"+hookText(strings.TrimSuffix(path, "/webhooks.yaml"), "ops", s.URL+"/services/"+segment+"?key="+url.QueryEscape(key), ""))
	hooks, err := loadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sender := newSender(hooks[0], "urn:x", "1", slog.New(slog.DiscardHandler))
	defer sender.close()
	for name, f := range map[string]func(*http.Request) string{
		"as it is":  func(r *http.Request) string { return "not found: " + r.URL.String() },
		"as JSON":   func(r *http.Request) string { return `{"path":"` + strings.ReplaceAll(r.URL.Path, "/", `\/`) + `"}` },
		"the value": func(r *http.Request) string { return "bad key " + r.URL.Query().Get("key") },
		"base64": func(r *http.Request) string {
			return base64.StdEncoding.EncodeToString([]byte(r.URL.Query().Get("key")))
		},
	} {
		say = f
		got := sender.postEvent(t.Context(), &job.Event{Kind: job.KindRunDead})
		if got == nil || !strings.Contains(got.reason, "[secret]") || strings.Contains(got.reason, segment) || strings.Contains(got.reason, "k+ey") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestLogsHideTheURL: an error of a request may quote an answer that is no HTTP.
func TestLogsHideTheURL(t *testing.T) {
	const segment = "Zx93kfLq20vbTT71rWc4"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, r.URL.Path+"\r\n\r\n")
	}))
	defer s.Close()
	path := write(t, "", "")
	write(t, path, "webhooks:"+hookText(strings.TrimSuffix(path, "/webhooks.yaml"), "ops", s.URL+"/services/"+segment, ""))
	hooks, err := loadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	sender := newSender(hooks[0], "urn:x", "1", logger)
	defer sender.close()
	failure := sender.postEvent(t.Context(), &job.Event{Kind: job.KindRunDead})
	if failure == nil || !strings.Contains(log.String(), "[secret]") ||
		strings.Contains(log.String()+failure.reason, segment) {
		t.Errorf("%+v, log %s", failure, log.String())
	}
}

// TestReasonsTakeAFixedTime: the time of a delivery does not show what of the URL's secret is in an answer. The clock
// stands still while the text is searched.
func TestReasonsTakeAFixedTime(t *testing.T) {
	path := write(t, "", "")
	write(t, path, "webhooks:"+hookText(strings.TrimSuffix(path, "/webhooks.yaml"), "ops",
		"http://127.0.0.1/0123456789abcdef", ""))
	hooks, err := loadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		sender := newSender(hooks[0], "urn:x", "1", slog.New(slog.DiscardHandler))
		defer sender.close()
		took := func(text string) time.Duration {
			begin := time.Now()
			sender.readExcerpt(strings.NewReader(text))
			sender.hide(text)
			return time.Since(begin)
		}
		wrong, right := took(strings.Repeat("Z123456789abcde:", 20)), took(strings.Repeat("0123456789abcde:", 20))
		if wrong != right || right < 2*320*time.Microsecond {
			t.Errorf("%v for a wrong guess, %v for a right one, want the same of some time", wrong, right)
		}
	})
}

// TestAnswersAreNotDecompressed checks that the sender stops reading an endless answer in gzip that decompresses to
// nothing.
func TestAnswersAreNotDecompressed(t *testing.T) {
	var sent atomic.Int64
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		if encoding := r.Header.Get("Accept-Encoding"); encoding != "" {
			t.Errorf("the request accepts %q", encoding)
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff})
		empty := bytes.Repeat([]byte{0, 0, 0, 0xff, 0xff}, 1<<10)
		for r.Context().Err() == nil && sent.Load() < 1<<30 {
			n, err := w.Write(empty)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	defer s.Close()
	path := write(t, "", "")
	write(t, path, "webhooks:"+hookText(strings.TrimSuffix(path, "/webhooks.yaml"), "ops", s.URL, ""))
	hooks, err := loadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sender := newSender(hooks[0], "urn:x", "1", slog.New(slog.DiscardHandler))
	defer sender.close()
	if got := sender.postEvent(t.Context(), &job.Event{Kind: job.KindRunDead}); got != nil {
		t.Errorf("%+v", got)
	}
	<-done
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d MiB of the answer were read", n>>20)
	}
}
