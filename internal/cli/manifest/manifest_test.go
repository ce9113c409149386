package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/cli/manifest"
)

// TestFaultsHaveTheirLines: one fault each, at the line of its field, whatever the
// form of the file.
func TestFaultsHaveTheirLines(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"unknown field":       {"id: a\nhandler: h\nspeed: 3\n", "f:3: speed: is unknown"},
		"misspelt":            {"id: a\nretry_polcy: {}\n", "f:2: retry_polcy: is unknown; did you mean retry_policy?"},
		"below":               {"id: a\nschedule:\n  interval:\n    evry: 3s\n", "f:4: schedule.interval.evry: is unknown; did you mean every?"},
		"second document":     {"id: a\n---\nid: b\ntimeout: 3\n", "f:4: timeout: is the number 3, want a duration"},
		"in a list":           {"- id: a\n- id: b\n  priority: high\n", "f:3: priority: is the text \"high\", want a whole number"},
		"in a mapping":        {"jobs:\n  a: {handler: h}\n  b:\n    priority: high\n", "f:4: priority"},
		"key and id":          {"jobs:\n  a:\n    id: b\n", `f:3: id: is "b", but the key is "a"`},
		"unknown section":     {"jobs: {}\nworkers:\n  a: {}\n", "f:2: workers: is unknown"},
		"unknown, of nothing": {"jobs: {}\nworkers:\n", "f:2: workers: is unknown"},
		"unknown, no section": {"version: 1\njobs: {}\n", "f:1: version: is unknown"},
		"no mapping":          {"jobs: 3\n", "f:1: jobs: is the number 3, want a mapping"},
		"a queue":             {"queues:\n  mail: {rate: fast}\n", `f:2: rate: is the text "fast", want a number`},
		"lines of an export":  {"{\"id\":\"a\"}\n\n{\"id\":\"b\",\"queue\":5}\n", "f:3: queue: is the number 5"},
		"sections in a line":  {"{\"id\":\"a\"}\n{\"jobs\":{\"b\":{\"queue\":5}}}\n", "f:2: queue: is the number 5"},
		"a broken line":       {"{\"id\":\"a\"}\n{\"id\":}x}\n", "f:2: "},
		"a backup":            {"{\"job\":{\"name\":\"x\"},\"checkpoint\":{}}\n", "f:1: job: this is a job with its states"},
		"a CronJob":           {"apiVersion: batch/v1\nkind: CronJob\n", "f:1: apiVersion: this is a Kubernetes object"},
		"syntax":              {"id: a\nlabels: {x\n", "invalid YAML: did not find"},
		"a key twice":         {"id: a\nid: b\n", "f:2: invalid YAML: mapping key"},
		"an alias of itself":  {"a: &a [*a]\n", "f:1: invalid YAML"},
		"a key of no text":    {"id: a\nlabels: {1: x}\n", "f:2: labels: is a mapping with keys that are no text"},
		"through an alias":    {"base: &b\n  timeout: soon\n---\nid: a\n", "f:1: base: is unknown"},
		"merged":              {"jobs:\n  a: &a\n    handler: h\n    timeout: soon\n", "f:4: timeout"},
		"payload of http":     {"id: a\nhttp:\n  url: http://x\n  verb: GET\n", "f:4: http.verb: is unknown"},
		"kind in http":        {"id: a\nhttp:\n  url: 5\n", "f:3: http.url: is a number, want text: quote it"},
		"twice a payload":     {"id: a\nhttp: {url: \"http://x\"}\npayload_text: y\n", "f:3: payload_text: there may be one of"},
		"payload of nothing":  {"id: a\nhandler: h\npayload_text: [a]\n", "f:3: payload_text: is a list"},
		"a number as text":    {"id: a\nhandler: h\npayload_text: 0755\n", "f:3: payload_text: is the number 493, want text: quote it"},
		"a number as an id":   {"id: 007\n", "f:1: id: is the number 7, want text: quote it"},
		"no base64":           {"id: a\npayload: '%'\n", "f:2: payload: is the text \"%\", want base64"},
		"paused":              {"id: a\npaused: maybe\n", "f:2: paused: is the text \"maybe\""},
		"a day as an id":      {"id: 2026-01-01\n", "f:1: id: is a time, want text: quote it"},
		"another namespace":   {"name: namespaces/other/jobs/a\n", "f:1: name: job \"a\" belongs to namespace other"},
		"a day in a text":     {"id: a\ntarget: 2026-01-01\n", "f:2: target: is a time, want text: quote it"},
		"out of range":        {"id: a\npriority: 3000000000\n", "f:2: priority: is 3000000000"},
		"no time":             {"id: a\nschedule: {once: tomorrow}\n", `f:2: schedule.once: is "tomorrow", want a time`},
		"an enum":             {"id: a\nmisfire_policy: {policy: never}\n", `misfire_policy.policy: is "never", want one of run_once, skip, run_all`},
		"a steering terminal": {"id: a\n\"sp\\u001beed\": 3\n", "f:2: sp\uFFFDeed: is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			set, faults := manifest.Read("f", []byte(c.text), "default")
			for i := range faults {
				faults[i].Column = 0 // see TestFaultsHaveTheirColumns
			}
			if len(faults) != 1 || !strings.HasPrefix(faults[0].String(), "f:") || !strings.Contains(faults[0].String(), c.want) {
				t.Errorf("%v and %d jobs, want %q", faults, len(set.Jobs), c.want)
			}
		})
	}
}

// TestFaultsHaveTheirColumns: those of the names of the fields, and of the elements of lists.
func TestFaultsHaveTheirColumns(t *testing.T) {
	for text, want := range map[string]string{
		"id: a\nspeed: 3\n":                                                    "f:2:1: speed",
		"- id: a\n- id: b\n  priority: high\n":                                 "f:3:3: priority",
		"jobs:\n  a: {handler: h, priority: high}\n":                           "f:2:19: priority",
		"id: a\nschedule:\n  cron:\n    expressions:\n      - 5\n":             "f:5:9: schedule.cron.expressions[0]",
		"id: a\nexec:\n  argv: [/bin/ls]\n  env: {PORT: 8080}\n":               "f:4:9: exec.env[\"PORT\"]: is a number, want text: quote it",
		"id: a\nexec: {argv: [ls, -l]}\n":                                      "f:2:15: exec.argv[0]: is not a clean absolute path",
		"id: a\nexec: /bin/ls\n":                                               "f:2:1: exec: is text, want an object such as {\"argv\"",
		"jobs:\n  a:\n    http: {url: example.com, expected_status: [2xx]}\n":  "f:3:12: http.url: has no scheme",
		"id: a\nhttp: {url: \"http://x\", methd: PUT}\n":                       "f:2:25: http.methd: is unknown; did you mean method?",
		"id: a\nhttp: {url: \"http://x\", headers: {Host: h, \"Te\": gzip}}\n": "f:2:44: http.headers[\"Te\"]",
		"{\"id\":\"a\"}\n{\"id\":\"b\",\"queue\":5}\n":                         "f:2: queue: is the number 5",
		"id: a\ntimeout: 9999999h\n":                                           "f:2:1: timeout: is \"9999999h\": is longer than 292 years",
		"id: a\nschedule: {every: 30s}\n":                                      "f:2:12: schedule.every: is unknown; did you mean interval: {every: 30s}?",
		"id: a\ncron: '@daily'\n":                                              "f:2:1: cron: is unknown; did you mean schedule: {cron: {expressions: [...]}}?",
		"id: a\npayload: {to: you}\n":                                          "f:2:1: payload: is a mapping, want base64; payload_text takes text as it is",
	} {
		_, faults := manifest.Read("f", []byte(text), "default")
		if len(faults) == 0 || !strings.HasPrefix(faults[0].String(), want) {
			t.Errorf("%q: %v, want %q", text, faults, want)
		}
	}
}

// TestAllFaultsOfPayloadsAreListed: nodes and workers refuse the same ones.
func TestAllFaultsOfPayloadsAreListed(t *testing.T) {
	_, faults := manifest.Read("f", []byte("id: a\nhttp:\n  url: example.com\n  expected_status: [2xx]\n  verb: GET\n"), "default")
	if len(faults) != 3 || faults[0].Line != 3 || faults[1].Line != 4 || faults[2].Line != 5 {
		t.Errorf("%v", faults)
	}
}

// TestDaysInDurations of files count as on the command line.
func TestDaysInDurations(t *testing.T) {
	set, faults := manifest.Read("f", []byte("id: a\nhandler: h\ndead_letter_ttl: 7d\nretention: 1d12h\n"), "default")
	if len(faults) > 0 || set.Jobs[0].Job.GetDeadLetterTtl().AsDuration().Hours() != 168 || set.Jobs[0].Job.GetRetention().AsDuration().Hours() != 36 {
		t.Errorf("%v %+v", faults, set.Jobs)
	}
}

// TestLocate: what a node says of the API's fields is found again.
func TestLocate(t *testing.T) {
	set, faults := manifest.Read("f", []byte(`defaults: &d
  timeout: 5m
`), "default")
	if len(faults) != 1 || len(set.Jobs) != 0 {
		t.Fatal(faults)
	}
	set, faults = manifest.Read("f", []byte(`
jobs:
  a: &a
    http: {url: "http://x"}
    timeout: 5m
    retryPolicy:
      maxAttempts: 3
    labels:
      "a.b": x
  b:
    <<: *a
    schedule:
      cron:
        expressions:
          - '@daily'
          - '@hourly'
`), "default")
	if len(faults) != 0 || len(set.Jobs) != 2 {
		t.Fatal(faults)
	}
	for path, lines := range map[string][2]int{
		"job_id": {3, 11}, "job.timeout": {5, 5}, "job.retry_policy.max_attempts": {7, 7}, `job.labels["a.b"]`: {9, 9},
		"job.handler": {4, 4}, "job.payload": {4, 4}, "job.schedule.cron.expressions[1]": {3, 16}, "job.schedule.cron.expressions[7]": {3, 14},
		"": {3, 11},
	} {
		for i := range set.Jobs {
			if got := set.Jobs[i].Locate(path, "x"); got.Line != lines[i] {
				t.Errorf("%s of %s is at line %d, want %d", path, set.Jobs[i].ID, got.Line, lines[i])
			}
		}
	}
	if set.Jobs[1].Job.GetTimeout().AsDuration().Minutes() != 5 || set.Jobs[1].Job.GetHandler() != "http" {
		t.Errorf("what is merged is lost: %v", set.Jobs[1].Job)
	}
}

// TestTextIsUnchanged: a field without a value is not set, whatever is quoted stays.
func TestTextIsUnchanged(t *testing.T) {
	for text, want := range map[string]string{"": "", "null": "", `"null"`: "null", "\"0755\"": "0755", "plain": "plain"} {
		set, faults := manifest.Read("f", []byte("id: a\nhandler: h\npayload_text: "+text+"\n"), "default")
		if len(faults) > 0 || len(set.Jobs) != 1 || string(set.Jobs[0].Job.GetPayload()) != want {
			t.Errorf("%q: %v, %+v", text, faults, set.Jobs)
		}
	}
}

func TestTooLarge(t *testing.T) {
	if _, faults := manifest.Read("f", make([]byte, manifest.MaxFile+1), "default"); len(faults) != 1 || !strings.Contains(faults[0].Text, "at most") {
		t.Error(faults)
	}
}

// TestYAMLBombsAreRefused: a few hundred bytes that stand for ten billion values, plainly or
// as what is merged into mappings.
func TestYAMLBombsAreRefused(t *testing.T) {
	for name, form := range map[string]struct{ first, next, part string }{
		"lists":  {"a0: &a0 [x]\n", "a%d: &a%d [%s]\n", "*a%d, "},
		"merges": {"a0: &a0 {x: y}\n", "a%d: &a%d {<<: [%s]}\n", "*a%d, "},
	} {
		text := "jobs:\n" + form.first
		for i := 1; i <= 10; i++ {
			text += fmt.Sprintf(form.next, i, i, strings.Repeat(fmt.Sprintf(form.part, i-1), 10))
		}
		set, faults := manifest.Read("f", []byte(strings.ReplaceAll(text, "\na", "\n  a")), "default")
		if len(set.Jobs) > 0 || len(faults) == 0 || !strings.Contains(faults.Error(), "stands for more than 32 MiB") {
			t.Errorf("%s: %d jobs, %v", name, len(set.Jobs), faults)
		}
	}
}

// FuzzRead: a file of any bytes is read or refused, and everything can be located.
func FuzzRead(f *testing.F) {
	f.Add("jobs: {a: {handler: h}}\nqueues: {q: {rate: 1}}\n")
	f.Add("- {id: a, labels: {a: b}}\n- &x {id: *x}\n")
	f.Add("{\"id\":\"a\"}\n{\"id\":\"b\"}\n")
	f.Add("a: &a\n  <<: *a\n")
	f.Add("a: {b??\r\r\r\r\r*n:}\n")
	f.Fuzz(func(t *testing.T, text string) {
		set, faults := manifest.Read("f", []byte(text), "default")
		lines := 2 // and as many as there are ends of lines, as YAML knows them
		for _, r := range text {
			if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) {
				lines++
			}
		}
		for _, fault := range append(faults, set.Check()...) {
			if fault.Line < 1 || fault.Line > lines || strings.ContainsAny(fault.String(), "\x1b\x00\n") {
				t.Fatalf("%q", fault)
			}
		}
		for i := range set.Jobs {
			if at := set.Jobs[i].Locate("job.schedule.cron.expressions[0]", "x"); at.Line < 1 || at.Line > lines {
				t.Fatalf("line %d of %d", at.Line, lines)
			}
		}
	})
}

// TestJSONFilesAreReadAsJSON: a file of one JSON value, as well as lines of them.
func TestJSONFilesAreReadAsJSON(t *testing.T) {
	set, faults := manifest.Read("a.json", []byte("{\"id\": \"a\", \"handler\": \"x\",\n \"payload_text\": \"\\ud83d\\ude80 https:\\/\\/e\"}\n"), "default")
	if len(faults) > 0 || len(set.Jobs) != 1 || string(set.Jobs[0].Job.GetPayload()) != "🚀 https://e" {
		t.Errorf("%v %+v", faults, set.Jobs)
	}
}

// TestPayloadJSON: a payload can be written as a value. Nodes of the previous version get bytes, which they know.
func TestPayloadJSON(t *testing.T) {
	set, faults := manifest.Read("f", []byte("id: a\nhandler: h\npayload_json: {b: [1, \"<\"], a: null}\n"), "default")
	if len(faults) > 0 || len(set.Jobs) != 1 || string(set.Jobs[0].Job.GetPayload()) != `{"a":null,"b":[1,"<"]}` {
		t.Fatalf("%v, %v", set.Jobs, faults)
	}
	_, faults = manifest.Read("f", []byte("id: a\nhandler: h\npayload_text: x\npayload_json: 1\n"), "default")
	if len(faults) != 1 {
		t.Errorf("two payloads: %v", faults)
	}
}
