package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/auth/payloadkeys"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/test/keytest"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestAuditAndReseal changes jobs by the command line and reads who did it, and seals
// payloads that were stored before there was a key.
func TestAuditAndReseal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	key := base64.StdEncoding.EncodeToString(keytest.Key("payload"))
	if err := os.WriteFile(path, []byte("k1 "+key), 0o600); err != nil {
		t.Fatal(err)
	}
	ring, err := payloadkeys.Load(path, payloadkeys.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := startCluster(t, func(o *registry.Options) { o.Sealer = ring })
	c.must("jobs", "create", "nightly", "--handler", "h", "--payload", "canary")
	if got := c.must("jobs", "get", "nightly"); !strings.Contains(got, "Payload:    6 bytes, sealed with key k1\n") {
		t.Errorf("nothing of the payload: %s", got)
	}
	c.must("jobs", "pause", "nightly")
	if code, _, _ := c.run("jobs", "pause", "none"); code != 3 {
		t.Fatalf("exit code %d", code)
	}
	var text string
	redistest.Eventually(t, redistest.Patience, "the records", func(context.Context) error {
		if text = c.must("audit", "--job", "nightly"); strings.Count(text, "anonymous") < 2 {
			return errors.New(text)
		}
		return nil
	})
	created, paused := strings.Index(text, "CreateJob"), strings.Index(text, "PauseJob")
	if created < 0 || paused < created || strings.Contains(text, "canary") || strings.Contains(c.must("audit"), "jobs/none") {
		t.Errorf("oldest first, of what changed something:\n%s", text)
	}
	var records []map[string]any
	if err := json.Unmarshal([]byte(c.must("audit", "-o", "json", "--identity", "anonymous", "--limit", "1")), &records); err != nil || len(records) != 1 ||
		!strings.HasSuffix(records[0]["method"].(string), "PauseJob") {
		t.Errorf("the newest: %v (%v)", records, err)
	}
	for _, args := range [][]string{{"--job", "a", "--resource", "b"}, {"--limit", "0"}, {"--since", "-1h"}, {"--follow", "-o", "json"}} {
		if code, _, _ := c.run(append([]string{"audit"}, args...)...); code != 2 {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
	// Four looks.
	if got := c.must("audit", "--job", "nightly", "--follow", "--request-timeout", "3500ms"); strings.Count(got, "PauseJob") != 1 {
		t.Errorf("followed, each once:\n%s", got)
	}
	if got := c.must("payloads", "reseal"); got != "sealed 0 payloads again, left 1 unchanged\n" {
		t.Errorf("what is sealed with the present key: %q", got)
	}
	if err := os.WriteFile(path, []byte("k2 "+key+"\nk1 "+key), 0o600); err != nil {
		t.Fatal(err)
	}
	if !ring.Reload(nil) {
		t.Fatal(ring.LoadError())
	}
	if got := c.must("payloads", "reseal"); got != "sealed 1 payload again, left 0 unchanged\n" {
		t.Errorf("after a rotation: %q", got)
	}
	if got := c.must("jobs", "get", "nightly", "-o", "json"); !strings.Contains(got, "\"payload_key_id\": \"k2\"") || strings.Contains(got, "canary") {
		t.Errorf("resealed: %s", got)
	}
}

// TestResealWithoutKeys: what a node cannot do for any job is said once.
func TestResealWithoutKeys(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "a", "--handler", "h", "--payload", "x")
	c.must("jobs", "create", "b", "--handler", "h", "--payload", "x")
	code, out, errs := c.run("payloads", "reseal")
	if code != exitUsage || out != "" || strings.Count(errs, "no payload keys: see --payload-key-file") != 1 || strings.Contains(errs, "failed") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// TestAuditTailReadsNothingTwice: neither where it finds what it seeks, nor where it does not.
func TestAuditTailReadsNothingTwice(t *testing.T) {
	c := startCluster(t)
	api, err := client.Dial([]string{c.address}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	newest := func() (record *client.AuditRecord) {
		for record, err = range api.Admin().AuditRecords(t.Context(), client.AuditFilter{}) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		return record
	}
	written := func(method string) *client.AuditRecord {
		redistest.Eventually(t, redistest.Patience, method, func(context.Context) error {
			if got := newest().GetMethod(); methodName(got) != method {
				return errors.New(got)
			}
			return nil
		})
		return newest()
	}
	tail := auditTail{client: api, filter: client.AuditFilter{Resource: "namespaces/default/jobs/b"}, limit: 10}
	for _, look := range []struct {
		args   []string
		method string
		want   int
	}{
		{[]string{"create", "a", "--handler", "h"}, "CreateJob", 0}, {[]string{"pause", "a"}, "PauseJob", 0},
		{[]string{"create", "b", "--handler", "h"}, "CreateJob", 1}, {[]string{"resume", "a"}, "ResumeJob", 0}, {[]string{"pause", "b"}, "PauseJob", 1},
	} {
		c.must(append([]string{"jobs"}, look.args...)...)
		last := written(look.method)
		for again := range 2 {
			records, err := tail.nextRecords(t.Context())
			if want := look.want * (1 - again); err != nil || len(records) != want {
				t.Fatalf("%v: %v (%v), want %d", look.args, records, err, want)
			}
			if got := tail.filter.From; !got.Equal(last.GetTime().AsTime()) {
				t.Errorf("after %v the next look begins at %v, want %v", look.args, got, last.GetTime().AsTime())
			}
		}
	}
}

// hearing is an output that is listened to.
type hearing func(text string)

func (h hearing) Write(p []byte) (int, error) {
	h(string(p))
	return len(p), nil
}

// TestAuditFollowedAsYAML: what comes later is a document of its own.
func TestAuditFollowedAsYAML(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1h", "--handler", "h")
	var out strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	paused := false
	runCommand(ctx, []string{"--address", c.address, "audit", "--job", "ping", "--follow", "-o", "yaml"}, standardStreams{strings.NewReader(""), hearing(func(text string) {
		out.WriteString(text)
		switch {
		case strings.Contains(text, "CreateJob") && !paused:
			paused = true
			c.must("jobs", "pause", "ping")
		case strings.Contains(text, "PauseJob"):
			cancel()
		}
	}), io.Discard}, time.Now)
	var methods []string
	for d := yaml.NewDecoder(strings.NewReader(out.String())); ; {
		var record struct{ Method string }
		if err := d.Decode(&record); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
		methods = append(methods, methodName(record.Method))
	}
	if !slices.Equal(methods, []string{"CreateJob", "PauseJob"}) {
		t.Errorf("%q of\n%s", methods, out.String())
	}
}
