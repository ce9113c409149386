package browsertest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/cli/manifest"
)

// paste puts a text into the field for files, at once.
func (p *tab) paste(text string) {
	p.t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		p.t.Fatal(err)
	}
	p.wait("the field", `!!document.querySelector("#apply-text")`)
	evaluate[bool](p, `(e => (e.value = `+string(quoted)+`, e.dispatchEvent(new Event("input", {bubbles: true})), true))(document.querySelector("#apply-text"))`)
}

// manyForms is a file with all that the files of the command line may have.
const manyForms = `
id: template
handler: h
timeout: 1m30s
retry_policy: {max_attempts: 4, strategy: linear, jitter: &equal {kind: equal}}
backoff_policy: {jitter: *equal}
labels: {team: "a&b", "007": "1"}
---
- id: cron
  handler: h
  schedule:
    cron: {expressions: ["H 2 * * *", "30 9 * * MON-FRI"], time_zone: Europe/Berlin, dst_gap: skip}
    exclusions: {dates: [2026-12-25, 12-24, 2026-12-31/2027-01-02], windows: ["22:00-06:00"]}
    jitter: 90s
  max_lag: 0.5s
- {id: web, http: {url: "https://example.com/?a=1&b=<2>", headers: {X-B: "2", X-A: "1"}, body: "ü", expected_status: ["200-204"]}, dead_letter_ttl: 2w}
- {id: program, exec: {argv: [/bin/echo, "a b"], env: {B: "2", A: "1"}}, paused: true}
- {id: text, handler: h, payload_text: "multi\nline ✓", overlap_policy: buffer_all, overlap_limit: 20, locks: [{key: db, limit: 2}, {key: x}]}
- {id: value, handler: h, payload_json: {b: [1, 2.5, true, null, 1_000, 0644, 0x1F, 0b11, 0o17, 089, -017, +5, 1.10], a: {z: "x", y: 1e3, yes: no, t: 09:30, v: "2026-01-01"}}}
- &other {id: other, handler: h, priority: 3}
- {id: weekly, handler: h, schedule: {calendar: {unit: week, every: 2, weekdays: [MON, FRI], times: [09:00, 17:30], from: "2026-11-30"}, end_time: 2031-01-01T00:00:00Z}}
- {<<: *other, id: merged, queue: mail}
- {id: often, handler: h, schedule: {interval: {every: 1h30m}}, misfire_policy: {policy: run_all, max_catch_up: 5, catch_up_window: 7d}, backoff_policy: {max_ratio: 12.5, preset: endpoint}}
`

// TestApplyReadsFilesAsTheCommandLine: what the command has applied, the console does not change.
func TestApplyReadsFilesAsTheCommandLine(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	content, faults := manifest.Read("jobs.yaml", []byte(manyForms), namespaceOf(t))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	var desired []*client.DesiredJob
	for _, j := range content.Jobs {
		desired = append(desired, &client.DesiredJob{JobId: j.ID, Job: j.Job, Paused: j.Paused})
	}
	changes, err := c.client.ApplyJobs(t.Context(), desired, client.ApplyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, change := range changes {
		if err := client.ChangeError(change); err != nil {
			t.Fatalf("%s: %v", desired[i].JobId, err)
		}
	}
	p := c.openTab("#/apply?namespace=" + namespaceOf(t))
	p.paste(manyForms)
	p.click("[data-plan]")
	p.waitText("main", "Plan")
	p.wait("the plan", `!!document.querySelector(".finding, .failed")`)
	if finding := p.text(".finding"); finding == "" || p.text("[data-apply]") != "Apply 0 changes" {
		t.Errorf("the console would change\n%s", p.text("main"))
	}
}

// TestApply applies what it has shown, and leaves a job alone that somebody else has changed since.
func TestApply(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	for _, id := range []string{"first", "second"} {
		c.createJob(id, &client.Job{Handler: "h", Schedule: client.Every(time.Hour)})
	}
	p := c.openTab("#/jobs?namespace=" + namespaceOf(t))
	p.waitText("tbody", "second")
	p.click("[data-apply-files]")
	p.waitText("h1", "Apply files")
	p.paste("jobs:\n  first: {handler: h, schedule: {interval: {every: soon}}, colour: red}\n  second: {handler: \"\"}\n")
	p.click("[data-plan]")
	p.waitText(".failed", "is unknown")
	p.waitText(".failed", "want a duration")
	p.checkForm("apply-faults")
	p.paste("jobs:\n  first: {handler: h, schedule: {cron: {expressions: [99 9 * * *]}}}\n")
	p.click("[data-plan]")
	p.waitText(".failed", "99 is no minute")
	p.paste("jobs: [\n")
	p.click("[data-plan]")
	p.waitText(".failed", "invalid YAML")
	for _, refused := range [][2]string{
		{"007: {handler: h}", "no text: quote it"}, {"a: {handler: h, labels: {2: x}}", "no text: quote it"},
		{"a: {id: 007, handler: h}", "quote it"}, {"a: {handler: h, payload_json: [12345678901234567890]}", "too large"},
		{"a: {handler: h, payload_json: 2026-01-01}", "has a time: quote it"}, {"a: {handler: h, payload_json: .inf}", "quote it"},
		{"a: {handler: h, target: 2026-01-01}", "quote it"}, {"a: {handler: 5}", "quote it"}, {"a: {handler: h, payload: x, payload_text: x}", "one of"},
		{"a: {handler: h, schedule: {once: 2030-01-01T00:00:00Z, cron: {}}}", "one of"}, {"a: {handler: h}\n  a: {handler: h}", "invalid YAML"},
		{"a: &a [*a, *a]", "contains itself"}, {"a: {name: namespaces/other/jobs/a, handler: h}", "belongs to namespace other"},
		{"a: {handler: h, <script>alert(1)</script>: \"<img src=x onerror=alert(1)>\"}", "<script>alert(1)</script>"},
	} {
		p.paste("jobs:\n  " + refused[0] + "\n")
		p.click("[data-plan]")
		p.waitText(".failed", refused[1])
		p.waitText(".failed", "Nothing is changed")
	}
	p.paste("x-common: 1\njobs: {}\n")
	p.click("[data-plan]")
	p.waitText(".failed", "x-common")
	p.paste("jobs:\n  first: {handler: h, schedule: {interval: {every: 2h}}, priority: 7}\n  second: {handler: h, schedule: {interval: {every: 3h}}}\n" +
		"  third: {handler: h, schedule: {cron: {expressions: [\"0 9 * * *\"]}}, paused: true}\n")
	evaluate[bool](p, `(data => (data.items.add(new File(["id: dropped\nhandler: h\n"], "more.yaml")),
		document.querySelector(".drop").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true})), true))(new DataTransfer())`)
	p.waitText(".drop li", "more.yaml")
	p.reload()
	p.wait("the files after a reload", `(document.querySelector("#apply-text")?.value ?? "").includes("third")`)
	p.click("[data-plan]")
	p.waitText(".finding", "2 created, 2 changed")
	p.waitText(".diff", "schedule.interval.every")
	p.checkForm("apply-plan")
	j, err := c.client.GetJob(t.Context(), "second")
	if err != nil {
		t.Fatal(err)
	}
	j.Queue = "mail"
	if _, err := c.client.UpdateJob(t.Context(), j, "queue"); err != nil {
		t.Fatal(err)
	}
	p.click("[data-apply]")
	p.waitText(".finding", "3 jobs applied, 1 refused")
	p.checkAccessibility("applied")
	if j, err = c.client.GetJob(t.Context(), "second"); err != nil || j.GetQueue() != "mail" || j.GetSchedule().GetInterval().GetEvery().AsDuration() != time.Hour {
		t.Errorf("the job that somebody else has changed is %v, error %v", j, err)
	}
	if j, err = c.client.GetJob(t.Context(), "third"); err != nil || j.GetStatus().GetPauseTime() == nil {
		t.Errorf("the new job is %v, error %v", j, err)
	}
	if j, err = c.client.GetJob(t.Context(), "first"); err != nil || j.GetPriority() != 7 {
		t.Errorf("the changed job is %v, error %v", j, err)
	}
}
