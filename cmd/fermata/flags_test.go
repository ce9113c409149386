package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/flagtest"
)

// build parses flags of a job.
func build(t *testing.T, args ...string) (*client.Job, []string, error) {
	t.Helper()
	var f jobFlags
	set := pflag.NewFlagSet("x", pflag.ContinueOnError)
	f.registerFlags(set)
	if err := set.Parse(args); err != nil {
		return nil, nil, newUsageError(err)
	}
	return f.buildJob(set, strings.NewReader("from stdin"), epoch)
}

// fieldsOf compares what a message says in JSON, without white space.
func fieldsOf(t *testing.T, j *client.Job) string {
	t.Helper()
	j.Payload = nil
	text, err := encodeMessage(j)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("\n", "", " ", "", `"`, "").Replace(text)
}

func TestFlagsDescribeAJob(t *testing.T) {
	tests := []struct {
		args, want string
		payload    string
		paths      string
	}{
		{args: "--every 30s --http http://a/b", want: "{handler:http,schedule:{interval:{every:30s}}}",
			payload: `{"url":"http://a/b"}`, paths: "handler payload schedule.interval"},
		{args: "--http http://a --method post --header A:b --header C:d:e --body x --expect-status 200-299,409 --http-timeout 2s",
			want:    "{handler:http}",
			payload: `{"method":"POST","url":"http://a","headers":{"A":"b","C":"d:e"},"body":"x","expected_status":["200-299","409"],"timeout":"2s"}`,
			paths:   "handler payload"},
		{args: "--http http://a --body x", want: "{handler:http}", payload: `{"method":"POST","url":"http://a","body":"x"}`, paths: "handler payload"},
		{args: `--exec ["/bin/x","-a"] --env A=b --dir /tmp --stdin y`, want: "{handler:exec}",
			payload: `{"argv":["/bin/x","-a"],"env":{"A":"b"},"dir":"/tmp","stdin":"y"}`, paths: "handler payload"},
		{args: "--handler h --payload-file -", want: "{handler:h}", payload: "from stdin", paths: "handler payload"},
		{args: "--every 1m --fixed-delay", want: "{schedule:{interval:{every:60s,fixed_delay:true}}}", paths: "schedule.interval"},
		{args: "--cron @daily --cron @hourly --tz Europe/Berlin --dst-gap skip --end 2030-01-02",
			want:  "{schedule:{cron:{expressions:[@daily,@hourly],time_zone:Europe/Berlin,dst_gap:DST_GAP_SKIP},end_time:2030-01-01T23:00:00Z}}",
			paths: "schedule.cron schedule.end_time"},
		{args: "--at 2030-07-01T12:00 --tz Europe/Berlin", want: "{schedule:{once:2030-07-01T10:00:00Z}}", paths: "schedule"},
		{args: "--in 90s", want: "{schedule:{once:2026-03-01T12:01:30Z}}", paths: "schedule"},
		{args: "--max-attempts 5 --retry-base 10s --retry-strategy linear --jitter full",
			want:  "{retry_policy:{strategy:STRATEGY_LINEAR,base_delay:10s,max_attempts:5,jitter:{kind:KIND_FULL}},backoff_policy:{jitter:{kind:KIND_FULL}}}",
			paths: "retry_policy.max_attempts retry_policy.strategy retry_policy.base_delay backoff_policy.jitter retry_policy.jitter"},
		{args: "--no-backoff", want: "{backoff_policy:{disabled:true}}", paths: "backoff_policy.disabled"},
		{args: "--jitter down:0.5 --backoff-max-exponent 0", want: "{backoff_policy:{max_exponent:0,jitter:{kind:KIND_DOWN,fraction:0.5}}}",
			paths: "backoff_policy.max_exponent backoff_policy.jitter"},
		{args: "--queue q --priority 0 --label a=b --timeout 1m --timeout-grace 0s --history 0 --retention 0s --dead-letter-ttl 1h",
			want:  "{queue:q,priority:0,labels:{a:b},timeout:60s,timeout_grace:0s,history_limit:0,retention:0s,dead_letter_ttl:3600s}",
			paths: "queue priority labels timeout timeout_grace history_limit retention dead_letter_ttl"},
		{args: "--every 1m --schedule-jitter 10s --max-runs 5 --exclude-window Sat,Sun --exclude-date 12-25,2026-01-01/2026-01-06 --exclude-cron H/15 --tz Europe/Berlin",
			want: "{schedule:{interval:{every:60s},exclusions:{cron:[H/15],dates:[12-25,2026-01-01/2026-01-06],windows:[Sat,Sun]," +
				"time_zone:Europe/Berlin},jitter:10s,max_runs:5}}",
			paths: "schedule.interval schedule.jitter schedule.max_runs schedule.exclusions"},
		{args: "--exclude-period 2030-01-01/2030-01-02T12:00 --tz Europe/Berlin --start 2029-01-01",
			want: "{schedule:{start_time:2028-12-31T23:00:00Z,exclusions:{periods:[{start_time:2029-12-31T23:00:00Z," +
				"end_time:2030-01-02T11:00:00Z}],time_zone:Europe/Berlin}}}",
			paths: "schedule.start_time schedule.exclusions"},
		{args: "--exclude-date=", want: "{schedule:{}}", paths: "schedule.exclusions"},
		{args: "--overlap allow-all --overlap-limit 3 --misfire run_all --catch-up-window 1h --max-catch-up 7 --lock a --lock b=c=2 --target api --pause-after 4 --max-lag 90s",
			want: "{overlap_policy:OVERLAP_POLICY_ALLOW_ALL,overlap_limit:3,misfire_policy:{policy:POLICY_RUN_ALL,catch_up_window:3600s,max_catch_up:7}," +
				"locks:[{key:a},{key:b=c,limit:2}],target:api,pause_after_failures:4,max_lag:90s}",
			paths: "overlap_policy overlap_limit misfire_policy.policy misfire_policy.catch_up_window misfire_policy.max_catch_up locks target pause_after_failures max_lag"},
		{args: "--lock= --target=", want: "{}", paths: "locks target"},
		{args: "--within-period --stale-after 1h --stale-halve --retry-exponent-offset 1 --retry-max-doublings 3",
			want:  "{retry_policy:{exponent_offset:1,max_doublings:3},backoff_policy:{stale_after:3600s,stale_halve:true,within_period:true}}",
			paths: "retry_policy.exponent_offset retry_policy.max_doublings backoff_policy.stale_after backoff_policy.stale_halve backoff_policy.within_period"},
		{args: "", want: "{}"},
	}
	for _, tt := range tests {
		j, paths, err := build(t, strings.Fields(tt.args)...)
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		payload := string(j.GetPayload())
		if got := fieldsOf(t, j); got != tt.want || payload != tt.payload || strings.Join(paths, " ") != tt.paths {
			t.Errorf("%s:\n got %s %s %v\nwant %s %s %s", tt.args, got, payload, paths, tt.want, tt.payload, tt.paths)
		}
	}
}

func TestInvalidFlagCombinations(t *testing.T) {
	for args, want := range map[string]string{
		"--every 1m --cron @daily":         "--every and --cron exclude each other",
		"--in 1m --at 2030-01-01":          "exclude each other",
		"--fixed-delay":                    "--fixed-delay needs --every",
		"--tz UTC --every 1m":              "--tz needs",
		"--dst-gap skip --every 1m":        "--dst-gap needs --cron",
		"--dst-gap often --cron @daily":    "want one of shift, skip",
		"--cron @daily --tz Mars/X":        "--tz",
		"--at noon":                        "--at \"noon\"",
		"--at=":                            "--at is empty",
		"--in -1m":                         "--in -1m0s",
		"--in 1m --max-runs 3":             "--in takes no --max-runs",
		"--exclude-period 2030-01-01":      "START/END",
		"--exclude-period 2030-01-01/":     "START/END",
		"--exclude-period noon/2030-01-01": "--exclude-period",
		"--lock a=0":                       "--lock \"a=0\"",
		"--overlap always":                 "want one of skip, buffer-one",
		"--misfire never":                  "want one of run-once, skip, run-all",
		"--http http://a --exec [\"x\"]":   "--http and --exec exclude each other",
		"--http http://a --payload x":      "--http and --payload exclude each other",
		"--payload a --payload-file b":     "exclude each other",
		"--http ftp://a":                   "http:// or https://",
		"--http http://a --header nothing": "Name: value",
		"--method GET":                     "--method needs --http",
		"--stdin x":                        "--stdin needs --exec",
		"--exec /bin/true":                 "JSON array",
		"--exec []":                        "JSON array",
		"--payload-file /does/not/exist":   "/does/not/exist",
		"--jitter much":                    "--jitter \"much\"",
		"--jitter down:x":                  "not a number",
		"--retry-strategy wild":            "--retry-strategy",
		"--every soon":                     "invalid argument",
		"--priority high":                  "invalid argument",
	} {
		_, _, err := build(t, strings.Fields(args)...)
		var u *usageError
		if !errors.As(err, &u) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// read reads a job file.
func read(t *testing.T, text string) ([]client.NewJob, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return (&app{namespace: "default"}).readJobs(path)
}

func TestFiles(t *testing.T) {
	jobs, err := read(t, `
id: ping
http: {url: "http://a", expected_status: ["200"]}
schedule:
  interval: {every: 1h30m, fixedDelay: true}
  start_time: 2030-01-01T00:00:00Z
retry_policy: {strategy: linear, baseDelay: 250ms}
backoff_policy: {jitter: {kind: KIND_EQUAL}, max_delay: 600s}
labels: {team: ops}
---
# nothing here
---
- id: a
  handler: h
  payload_text: "hello"
- name: namespaces/default/jobs/b
  handler: h
  payload: aGk=
  etag: e
  status: {state: STATE_DONE}
`)
	if err != nil {
		t.Fatal(err)
	}
	var ids, payloads []string
	for _, j := range jobs {
		ids = append(ids, j.ID)
		payloads = append(payloads, string(j.Job.GetPayload()))
	}
	if !slices.Equal(ids, []string{"ping", "a", "b"}) || !slices.Equal(payloads, []string{`{"url":"http://a","expected_status":["200"]}`, "hello", "hi"}) {
		t.Errorf("ids %q payloads %q", ids, payloads)
	}
	want := "{handler:http,labels:{team:ops},schedule:{interval:{every:5400s,fixed_delay:true},start_time:2030-01-01T00:00:00Z}," +
		"retry_policy:{strategy:STRATEGY_LINEAR,base_delay:0.250s},backoff_policy:{max_delay:600s,jitter:{kind:KIND_EQUAL}}}"
	if got := fieldsOf(t, jobs[0].Job); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBadFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "holds no job",
		"a: [":                             "yaml",
		"just text":                        "a job is a mapping",
		"handler: h\nspeed: 3":             "speed",
		"timeout: soon":                    `timeout: is "soon": want a duration`,
		"schedule: {interval: {every: x}}": "schedule.interval.every",
		"http: {uri: x}":                   "uri",
		"http: {url: x}\nhandler: exec":    "payload of handler http",
		"http: {url: 'http://x'}\npayload_text: y": "there may be one of",
		"id: a\nname: namespaces/default/jobs/b":   "the same job as id",
		"name: namespaces/other/jobs/b":            "--namespace other",
		"retry_policy: {strategy: wild}":           "wild",
	} {
		_, err := read(t, text)
		var u *usageError
		if !errors.As(err, &u) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestFilesRoundTrip(t *testing.T) {
	c := startCluster(t)
	code, _, errs := c.run("jobs", "create", "-f", "-", `<
- {id: a, http: {url: "http://a"}, schedule: {interval: {every: 1m}}}
- {id: b, handler: h, payload_text: "line\nother", schedule: {cron: {expressions: ["@daily"]}}}
- {id: bad, handler: h, schedule: {interval: {every: 1s}}}
`)
	if code != exitUsage || !strings.Contains(errs, "bad: the cluster refused the request\n  job.schedule.interval.every:") {
		t.Fatalf("exit code %d\n%s", code, errs)
	}
	file := c.must("jobs", "get", "b", "-o", "yaml")
	if !strings.Contains(file, "payload_text: |-\n  line\n  other\n") {
		t.Errorf("payload is not readable:\n%s", file)
	}
	if code, _, errs := c.run("jobs", "update", "-f", "-", "<"+strings.Replace(file, "queue: default", "queue: mail", 1)); code != 0 {
		t.Fatalf("update: exit code %d\n%s", code, errs)
	}
	if code, _, _ := c.run("jobs", "update", "-f", "-", "<"+file); code != exitConflict {
		t.Errorf("update under an old etag: exit code %d", code)
	}
	var got struct{ Queue, Payload string }
	if err := json.Unmarshal([]byte(c.must("jobs", "get", "b", "-o", "json")), &got); err != nil || got.Queue != "mail" || got.Payload != "bGluZQpvdGhlcg==" {
		t.Errorf("after the update: %+v, %v", got, err)
	}
	all := c.must("jobs", "list", "-o", "yaml")
	c.must("jobs", "delete", "a", "b")
	c.must("jobs", "create", "-f", "-", "<"+all)
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(c.must("jobs", "list", "-o", "json")), &list); err != nil || len(list) != 2 {
		t.Fatalf("%d jobs, %v", len(list), err)
	}
	var job client.Job
	if err := protojson.Unmarshal(list[0], &job); err != nil || client.JobID(&job) != "a" || job.GetSchedule().GetInterval().GetEvery().AsDuration() != time.Minute {
		t.Errorf("%v, %v", &job, err)
	}
}

func TestSettingsFromTheEnvironment(t *testing.T) {
	c := startCluster(t)
	t.Setenv("FERMATA_NAMESPACE", "other")
	t.Setenv("FERMATA_QUEUE", "no flag of the command is filled from the environment")
	c.must("jobs", "create", "ping", "--handler", "h")
	if out := c.must("jobs", "get", "ping", "-o", "yaml"); !strings.Contains(out, "name: namespaces/other/jobs/ping") || !strings.Contains(out, "queue: default") {
		t.Errorf("got\n%s", out)
	}
	if code, _, errs := c.run("version", "--tls-cert", "x"); code != exitUsage || !strings.Contains(errs, "go together") {
		t.Errorf("exit code %d %s", code, errs)
	}
	if code, _, errs := c.run("jobs", "list", "--tls-ca", "/does/not/exist"); code != exitUsage || !strings.Contains(errs, "--tls-ca") {
		t.Errorf("exit code %d %s", code, errs)
	}
	if out := c.must("version"); strings.TrimSpace(out) == "" {
		t.Error("no version")
	}
}

// TestJSONCannotControlATerminal: what others wrote arrives as it is, and moves no cursor.
func TestJSONCannotControlATerminal(t *testing.T) {
	const text = "a\u009b31m b\u202etxt.exe c\u007f d\x1b[2J e\u200bf é 😀 \\u0041"
	out, err := encodeLine(&client.Job{Handler: text})
	if err != nil || strings.ContainsAny(out, "\u009b\u202e\u007f\x1b\u200b") {
		t.Errorf("%q, %v", out, err)
	}
	var back client.Job
	if err := protojson.Unmarshal([]byte(out), &back); err != nil || back.GetHandler() != text {
		t.Errorf("comes back as %q, %v", back.GetHandler(), err)
	}
}

func TestFormats(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 250 * time.Millisecond: "250ms", 12 * time.Second: "12s", 90 * time.Second: "1m30s",
		time.Hour: "1h", 25 * time.Hour: "1d1h", 24*time.Hour + time.Second: "1d", -3 * time.Second: "-3s",
	} {
		if got := durationText(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if got := clipText("a\tb\x1b[2J\u202ec\xff", 40); got != "a b\uFFFD[2J\uFFFDc\uFFFD" {
		t.Errorf("%q", got)
	}
	if got := clipText("übermäßig", 5); got != "über…" {
		t.Errorf("%q", got)
	}
}

func TestNoUsageHasBackquotes(t *testing.T) { flagtest.NoBackquotes(t, (&app{}).rootCommand()) }

// TestEmptyTimesAreUnset: a variable of a script that is empty is not what the flag's
// absence is.
func TestEmptyTimesAreUnset(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1h", "--handler", "h")
	for _, args := range [][]string{
		{"jobs", "hint", "ping", "--at", ""}, {"jobs", "hint", "ping", "--every", "10s", "--until", ""},
		{"preview", "ping", "--after", ""},
	} {
		if code, _, errs := c.run(args...); code != exitUsage || !strings.Contains(errs, "is empty") {
			t.Errorf("%q: exit code %d: %s", args, code, errs)
		}
	}
}

// TestFilesOfFlagsAreGuarded: see flagtest.
func TestFilesOfFlagsAreGuarded(t *testing.T) {
	flagtest.FilesAreGuarded(t, (&app{}).rootCommand(), map[string]string{
		"fermata --config":                                       "version --config PATH",
		"fermata --oidc-ca":                                      "login --address 127.0.0.1:1 --oidc-issuer https://127.0.0.1:1 --oidc-client-id c --oidc-ca PATH",
		"fermata --oidc-client-secret-file":                      "login --address 127.0.0.1:1 --oidc-issuer https://127.0.0.1:1 --oidc-client-id c --oidc-client-secret-file PATH",
		"fermata --tls-ca":                                       "whoami --tls-ca PATH",
		"fermata --tls-cert":                                     "whoami --tls-cert PATH --tls-key k",
		"fermata --tls-key":                                      "whoami --tls-cert c --tls-key PATH",
		"fermata --token-file":                                   "whoami --token-file PATH",
		"fermata audit export --post-header-file":                "audit export --post https://127.0.0.1:1 --post-header-file PATH",
		"fermata audit verify --public-key-file":                 "audit verify --public-key-file PATH",
		"fermata redis acl --password-file":                      "redis acl --password-file PATH",
		"fermata redis functions --redis-password-file":          "redis functions --load --redis-password-file PATH",
		"fermata redis functions --redis-sentinel-password-file": "redis functions --load --redis-sentinel-password-file PATH",
		"fermata redis functions --redis-tls-ca":                 "redis functions --load --redis-url rediss://127.0.0.1:1 --redis-tls-ca PATH",
		"fermata redis functions --redis-tls-cert":               "redis functions --load --redis-url rediss://127.0.0.1:1 --redis-tls-cert PATH --redis-tls-key k",
		"fermata redis functions --redis-tls-key":                "redis functions --load --redis-url rediss://127.0.0.1:1 --redis-tls-cert c --redis-tls-key PATH",
	}, map[string]string{
		"fermata apply --file":                 "jobs, which diff shows before",
		"fermata audit export --file":          "it is written",
		"fermata audit verify --file":          "what is verified is not trusted",
		"fermata diff --file":                  "jobs, which are shown",
		"fermata events --resume-file":         "a place in the stream of events, which is written anew",
		"fermata import --file":                "an export, which the caller restores",
		"fermata import crontab --user-column": "yes, no or auto",
		"fermata jobs create --dir":            "a directory of the worker",
		"fermata jobs create --file":           "a job, which the caller has made",
		"fermata jobs create --payload-file":   "a payload, which the caller has made",
		"fermata jobs update --dir":            "a directory of the worker",
		"fermata jobs update --file":           "a job, which the caller has made",
		"fermata jobs run --payload-file":      "a payload, which the caller has made",
		"fermata jobs update --payload-file":   "a payload, which the caller has made",
	}, func(args ...string) string {
		var out, said bytes.Buffer
		runCommand(t.Context(), args, standardStreams{in: strings.NewReader(""), out: &out, err: &said}, time.Now)
		return said.String()
	})
}
