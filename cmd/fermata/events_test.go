package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// hooks are webhooks that are not there.
type hooks struct{ letters []job.UndeliveredEvent }

func (h *hooks) Statuses(context.Context) ([]job.WebhookStatus, error) {
	return []job.WebhookStatus{{Name: "ops", URL: "https://hooks.example.com", Behind: 2, Failing: 1, Lag: 90 * time.Second, Undelivered: len(h.letters)}}, nil
}

func (h *hooks) UndeliveredEvents(context.Context, string, int) ([]job.UndeliveredEvent, error) {
	return h.letters, nil
}

func (h *hooks) Redeliver(_ context.Context, hook, event string, drop bool) (job.Redelivery, error) {
	switch {
	case hook != "ops":
		return job.Redelivery{}, job.Invalid("webhook", "there is no webhook %q", hook)
	case drop:
		return job.Redelivery{Delivered: 2, Refused: 3, Refusal: "status 422"}, nil
	case event == "3-1772366400000-7":
		return job.Redelivery{Delivered: 1, Remaining: 4}, nil
	case event != "":
		return job.Redelivery{Refused: 1, Refusal: "status 413: too \x1b[1mlarge", Remaining: 5}, nil
	}
	return job.Redelivery{Delivered: 1, Refused: 1, Refusal: "status 422", Failure: "status 500", Remaining: 4}, nil
}

// TestEvents is a failing run as the command line shows it, and webhooks.
func TestEvents(t *testing.T) {
	c := startCluster(t)
	text := c.script("events")
	c.must("jobs", "create", "nightly", "--every", "1m", "--handler", "h", "--label", "team=ops", "--jitter", "none", "--max-attempts", "2", "--retry-base", "10s")
	c.pass(time.Second)
	c.attempt("nightly", job.OutcomeFailed, "no luck")
	c.attempt("nightly", job.OutcomeFailed, "no luck again")
	c.must("jobs", "pause", "nightly", "--note", "until Monday")
	text += c.script("events", "events --kind run.dead,job.paused --job nightly", "events --label team=dev", "events --since 1s -A --kind run.*",
		"events --kind run.dade", "events -o yaml", "events --resume nonsense")
	c.hooks.letters = []job.UndeliveredEvent{{
		Webhook: "ops", Attempts: 12, AtMS: unixtime.MilliOf(epoch), Reason: "status 503",
		Event: job.Event{Shard: 3, Place: job.Place{MS: unixtime.MilliOf(epoch), Seq: 7}, Kind: job.KindRunDead, Key: job.Key{Namespace: "default", ID: "nightly"}},
	}}
	text += c.script("webhooks list", "webhooks undelivered", "webhooks redeliver ops --event 3-1772366400000-7", "webhooks redeliver ops --event 3-1772366400000-8",
		"webhooks redeliver ops", "webhooks redeliver ops --drop-refused", "webhooks redeliver other")
	golden(t, "events", text)
}

// TestEventsFollow: what comes is shown until it is interrupted, one object a line; the
// file with the place has the next call go on, and a token on the command line too.
func TestEventsFollow(t *testing.T) {
	c := startCluster(t)
	place := filepath.Join(t.TempDir(), "place")
	follow := func(until string, args ...string) (out, errs string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stdout, stderr := &interrupting{until: until, interrupt: cancel}, &bytes.Buffer{}
		code := runCommand(ctx, append([]string{"--address", c.address, "events", "-f", "-o", "json"}, args...),
			standardStreams{strings.NewReader(""), stdout, stderr}, func() time.Time { return time.UnixMilli(c.clock.Load()).UTC() })
		if code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, stderr)
		}
		return stdout.String(), stderr.String()
	}
	c.must("jobs", "create", "a", "--handler", "h")
	first, _ := follow("job.created", "--resume-file", place, "--since", "1h")
	c.must("jobs", "pause", "a")
	second, _ := follow("job.paused", "--resume-file", place)
	c.must("jobs", "delete", "a")
	token, err := os.ReadFile(place)
	if err != nil {
		t.Fatal(err)
	}
	third, hint := follow("job.deleted", "--resume", strings.TrimSpace(string(token)))
	for text, want := range map[string]string{first: "job.created", second: "job.paused", third: "job.deleted"} {
		var e struct{ Kind, Job string }
		if err := json.Unmarshal([]byte(text), &e); err != nil || e.Kind != want || e.Job != "namespaces/default/jobs/a" {
			t.Errorf("%s: %v in %q", want, err, text)
		}
	}
	if !strings.HasPrefix(hint, "go on with: --resume ") {
		t.Errorf("%q", hint)
	}
}

// interrupting is an output that interrupts the command when it has seen a text.
type interrupting struct {
	bytes.Buffer
	until     string
	interrupt func()
}

func (i *interrupting) Write(p []byte) (int, error) {
	if strings.Contains(string(p), i.until) {
		i.interrupt()
	}
	return i.Buffer.Write(p)
}
