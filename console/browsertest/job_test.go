package browsertest

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// jobPlace is the place of a job of a test.
func jobPlace(t *testing.T, id string) string {
	return "#/namespaces/" + namespaceOf(t) + "/jobs/" + id
}

// TestJobShowsItsBackoff: the sentence, the curve and the ladder say the same.
func TestJobShowsItsBackoff(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.startWorker()
	c.createJob("breaks", &client.Job{
		Handler: "fail", Schedule: client.Every(2 * time.Second),
		BackoffPolicy: &client.BackoffPolicy{Multiplier: 10, Jitter: &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_NONE}},
	})
	p := c.openTab(jobPlace(t, "breaks"))
	p.waitText(".sentence", "2 runs in a row failed")
	p.waitText(".sentence", "the disk is full")
	p.wait("the curve", `document.querySelector(".curve")?.ariaLabel?.startsWith("After 2 failures in a row the interval is 3 min 20 s")`)
	p.waitText(".ladder .shut", "Backoff")
	p.waitText(".outlook", "every 2 s")
	p.waitText("tbody", "dead")
	p.checkAccessibility("job")
	p.screenshot("job-light")
	p.setTheme("dark")
	p.checkAccessibility("job, dark")
	p.screenshot("job-dark")
	p.setSize(360, 900)
	p.checkAccessibility("job, narrow")
	if wide := evaluate[int64](p, `document.documentElement.scrollWidth`); wide > 360 {
		t.Errorf("the page is %d wide in a window of 360", wide)
	}
	p.screenshot("job-narrow")
	p.setSize(1440, 900)
	p.click("tbody tr:nth-child(2) th a")
	p.waitText("main", "the disk is full")
	p.waitText("h1", "Run of")
	p.checkAccessibility("run")
}

// TestAttemptsOnOneAxis: a run shows each of its attempts, and the step of the backoff before the next one.
func TestAttemptsOnOneAxis(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.startWorker()
	c.createJob("retried", &client.Job{
		Handler: "fail", Schedule: client.Once(time.Now()), RetryPolicy: &client.RetryPolicy{
			MaxAttempts: 3, BaseDelay: durationpb.New(300 * time.Millisecond), Multiplier: 2,
			Jitter: &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_NONE},
		},
	})
	var run *client.Run
	redistest.Eventually(t, patience, "the end of the run", func() bool {
		runs, err := c.client.Runs(t.Context(), "retried")
		if err == nil && len(runs) > 0 {
			run = runs[0]
		}
		return run.GetState() == client.RunFinished
	})
	p := c.openTab(jobPlace(t, "retried") + "/runs/" + client.RunID(run))
	p.wait("three attempts", `document.querySelector(".run-axis")?.ariaLabel?.includes("3 attempts: failed, failed, failed")`)
	if n := evaluate[int](p, `document.querySelectorAll(".run-axis rect.retry").length`); n != 3 {
		t.Errorf("the axis has %d attempts", n)
	}
	for _, want := range []string{"backoff 1 of 2: 300 ms", "backoff 2 of 2: 600 ms", "w-" + namespaceOf(t)} {
		p.waitText("tbody", want)
	}
	p.checkAccessibility("attempts")
	p.screenshot("run-light")
}

// TestActionsByKeyboard pauses and resumes a job without a mouse. The note is stored, and the focus comes back.
func TestActionsByKeyboard(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab(jobPlace(t, "job"))
	p.focus("[data-action=pause-job]")
	p.press(kb.Enter)
	p.waitText("dialog[open]", "Pause job")
	p.checkAccessibility("dialog")
	p.press(`disk "full" <b>`)
	command := "fermata jobs pause job --namespace " + namespaceOf(t) + ` --note 'disk "full" <b>'`
	p.wait(command, fmt.Sprintf(`document.querySelector("dialog[open] pre").textContent === %q`, command))
	p.press(kb.Enter)
	p.waitText(".notices", "job is paused")
	j, err := c.client.GetJob(t.Context(), "job")
	if err != nil || j.GetStatus().GetPauseNote() != `disk "full" <b>` {
		t.Errorf("note %q, error %v", j.GetStatus().GetPauseNote(), err)
	}
	p.waitText(".ladder .shut", "Enabled")
	p.focus("[data-action=resume-job]")
	p.press(" ")
	p.waitText("dialog[open]", "Resume job")
	p.press(kb.Escape)
	p.waitGone("dialog[open]")
	if at := p.focused(); !strings.Contains(at, "Resume") {
		t.Errorf("after the dialog the focus is at %q", at)
	}
	p.press(kb.Enter)
	p.press(kb.Tab)
	p.click("dialog[open] [data-confirm]")
	p.waitText(".notices", "goes on")
}

// TestActionIsTakenOnce: two clicks, as of an impatient person, are one run.
func TestActionIsTakenOnce(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.startWorker()
	c.createJob("job", &client.Job{Handler: "ok"})
	p := c.openTab(jobPlace(t, "job"))
	p.click("[data-action=run-job]")
	p.waitText("dialog[open]", "Run job now")
	evaluate[bool](p, `(b => (b.click(), b.click(), true))(document.querySelector("dialog[open] [data-confirm]"))`)
	p.waitText(".notices", "on its way")
	redistest.Eventually(t, patience, "a run", func() bool {
		j, err := c.client.GetJob(t.Context(), "job")
		return err == nil && j.GetStatus().GetRunsTotal() > 0
	})
	runs, err := c.client.Runs(t.Context(), "job")
	if err != nil || len(runs) != 1 {
		t.Errorf("%d runs, error %v", len(runs), err)
	}
}

// TestReadOnlyConsole: actions say why they are disabled, and forged calls of the page are refused.
func TestReadOnlyConsole(t *testing.T) {
	o := gateway.Options{Console: testConsole()}
	o.Console.ReadOnly = true
	c := startCluster(t, o)
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab(jobPlace(t, "job"))
	p.waitText(".banner", "Read-only")
	p.click("[data-action=pause-job]")
	p.waitText(".notices", "read-only")
	p.checkAccessibility("read-only")
	answer := evaluate[string](p, `fetch("v1/namespaces/`+namespaceOf(t)+`/jobs/job:pause", {method: "POST", body: "{}"}).then(r => r.text())`)
	if !strings.Contains(answer, "READ_ONLY_CONSOLE") {
		t.Errorf("a forged call: %s", answer)
	}
}

// TestRunWithAnotherPayload: the dialog of a run takes another payload, checks JSON, keeps what was typed, and copies
// both commands. The job keeps its payload.
func TestRunWithAnotherPayload(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("digest", &client.Job{Handler: "none", Schedule: client.Every(time.Hour), Payload: []byte(`{"date":"2026-11-01"}`)})
	p := c.openTab(jobPlace(t, "digest"))
	p.click("[data-action=run-job]")
	p.waitText("dialog[open] h2", "Run digest now")
	p.click("dialog[open] [data-action=run-job-with-payload]")
	p.waitText("dialog[open] h2", "Run digest now with another payload")
	p.wait("the job's payload", `document.querySelector("dialog[open] textarea").value === '{"date":"2026-11-01"}'`)
	p.wait("the focus", `document.activeElement.name === "format"`)
	p.checkAccessibility("dialog with a payload")
	enter := func(text string) {
		const field = "dialog[open] textarea"
		p.focus(field)
		evaluate[bool](p, fmt.Sprintf("(document.querySelector(%q).select(), true)", field))
		p.press(text)
	}
	enter(`{"id": 12345678901234567890`)
	p.click("dialog[open] [data-confirm]")
	p.waitText("dialog[open]", "not valid JSON")
	const payload = `{"id": 12345678901234567890, "who": "Ann's ✓"}`
	enter(payload)
	command := "fermata jobs run digest --namespace " + namespaceOf(t) + ` --payload '{"id": 12345678901234567890, "who": "Ann'\''s ✓"}'`
	p.wait(command, fmt.Sprintf(`document.querySelector("dialog[open] pre").textContent === %q`, command))
	for _, part := range []string{"jobs/digest:runWithPayload", base64.StdEncoding.EncodeToString([]byte(payload))} {
		p.wait(part, fmt.Sprintf(`[...document.querySelectorAll("dialog[open] pre")].some(e => e.textContent.includes(%q))`, part))
	}
	p.click("dialog[open] [data-confirm]")
	p.waitText(".notices", "the run with another payload is on its way")
	runs, err := c.client.Runs(t.Context(), "digest")
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(runs, func(r *client.Run) bool { return r.GetOwnPayload() != nil })
	if at < 0 {
		t.Fatalf("no run has a payload of its own: %v", runs)
	}
	run, err := c.client.GetRun(t.Context(), runs[at].GetName())
	if err != nil || string(run.GetOwnPayload().GetPayload()) != payload {
		t.Errorf("the run has the payload %q, error %v", run.GetOwnPayload().GetPayload(), err)
	}
	j, err := c.client.GetJob(t.Context(), "digest")
	if err != nil || string(j.GetPayload()) != `{"date":"2026-11-01"}` {
		t.Errorf("the job has the payload %q, error %v", j.GetPayload(), err)
	}
	p.click("[data-action=run-job]")
	p.waitText("dialog[open] h2", "Run digest now")
	p.waitGone("dialog[open] textarea")
}
