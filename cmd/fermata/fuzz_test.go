package main

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
)

// FuzzImportLine: a line of an import of any bytes is a job or refused.
func FuzzImportLine(f *testing.F) {
	for _, line := range []string{
		`{"name":"namespaces/n/jobs/j","handler":"http","payload":"e30=","schedule":{"interval":{"every":"60s"}}}`,
		`{"job":{"name":"namespaces/n/jobs/j"},"checkpoint":{}}`, `{"job":null}`, `{"job":[]}`, `{}`, `[]`, `null`, `{"job":{"priority":-1}}`, "\xff", `{"Job":{}}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		b, err := readLine(line)
		if err != nil {
			if text := printableText(err.Error()); strings.ContainsAny(text, "\x1b\x00") {
				t.Fatalf("%q would reach a terminal", text)
			}
			return
		}
		client.JobID(b.GetJob())
		if _, err := proto.Marshal(b); err != nil {
			t.Fatalf("cannot be sent: %v", err)
		}
	})
}

// FuzzJobFile: a file of jobs of any bytes is read or refused.
func FuzzJobFile(f *testing.F) {
	for _, text := range []string{
		"id: ping\nhttp:\n  url: https://example.com\nschedule:\n  interval: {every: 30s}\n", "- id: a\n  exec: {argv: [/bin/true]}\n- id: b\n  payload_text: x\n",
		"id: 5\nhandler: h\nschedule: {cron: {expressions: [2026-12-25]}}", "a: &a [*a]", "&x {id: *x}", "http: {url: 5}", "---\n---\n", "null", "id: {}\nhttp: []",
		"backoff_policy: {jitter: {kind: equal}, max_delay: x}", "labels: {1: 2}", "schedule: {once: 2026-01-01T00:00:00Z}", "? [a]\n: b",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a := &app{namespace: "default"}
		a.in = strings.NewReader(text)
		jobs, err := a.readJobs("-")
		if err == nil && len(jobs) == 0 {
			t.Fatal("neither jobs nor an error")
		}
	})
}
