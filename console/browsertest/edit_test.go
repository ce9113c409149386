package browsertest

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// choose sets a choice of a form.
func (p *tab) choose(selector, value string) {
	p.t.Helper()
	evaluate[bool](p, `(e => (e.value = "`+value+`", e.dispatchEvent(new Event("change", {bubbles: true})), true))(document.querySelector("`+selector+`"))`)
}

// fill replaces the text of a field.
func (p *tab) fill(selector, text string) {
	p.t.Helper()
	p.wait(selector, `!!document.querySelector("`+selector+`")`)
	evaluate[bool](p, `(e => (e.focus(), e.select(), true))(document.querySelector("`+selector+`"))`)
	p.press(text)
}

// field is the selector of a field of a job.
func field(path string) string { return "[data-field='" + path + "']" }

// checkForm looks at a form in both themes, wide and narrow.
func (p *tab) checkForm(name string) {
	p.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		p.setTheme(theme)
		for _, width := range []int64{1440, 360} {
			p.setSize(width, 900)
			p.checkAccessibility(name + ", " + theme)
			if wide := evaluate[int64](p, `document.documentElement.scrollWidth`); wide > width {
				p.t.Errorf("%s: the page is %d wide in a window of %d", name, wide, width)
			}
		}
		p.setSize(1440, 900)
		p.screenshot(name + "-" + theme)
	}
}

// TestCreateJob: errors of the nodes are beside their fields, and what was typed survives a reload.
func TestCreateJob(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	p := c.openTab("#/jobs?namespace=" + namespaceOf(t))
	p.waitText(".empty", "no job yet")
	p.click("[data-create]")
	p.waitText("h1", "Create a job")
	p.fill(field("jobId"), "report")
	p.choose("[name='$schedule']", "cron")
	p.fill(field("schedule.cron.expressions"), "99 9 * * *")
	p.waitText(".invalid", "99 is no minute")
	p.click("[data-save]")
	p.waitText(".invalid", "is empty")
	if at := evaluate[string](p, `document.activeElement.dataset.field ?? ""`); at != "handler" {
		t.Errorf("after a refusal the focus is at %q", at)
	}
	p.fill(field("handler"), "mailer")
	p.fill(field("timeout"), "soon")
	p.waitText(".invalid", "want a duration")
	p.fill(field("timeout"), "1m30s")
	p.fill(field("schedule.cron.expressions"), "30 2 * * *")
	p.fill(field("schedule.cron.timeZone"), "Europe/Berlin")
	p.waitText(".studio", "Next times")
	p.checkForm("create")
	p.reload()
	p.waitText(".stale", "is back")
	p.click("[data-save]")
	p.waitText("main", "no worker now") // a warning
	p.checkAccessibility("warnings")
	p.click("main a.main")
	p.waitText(".actions", "Edit")
	j, err := c.client.GetJob(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	if j.GetHandler() != "mailer" || j.GetTimeout().AsDuration() != 90*time.Second || j.GetSchedule().GetCron().GetTimeZone() != "Europe/Berlin" {
		t.Errorf("the job is %v", j)
	}
	if kept := evaluate[int](p, `Object.keys(sessionStorage).filter(k => k.startsWith("fermata.draft")).length`); kept != 0 {
		t.Errorf("%d drafts are kept of a saved job", kept)
	}
}

// TestEditJob: only what was changed is sent, and never over a change that the page has not shown.
func TestEditJob(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Cron("0 9 * * *", "Europe/Berlin"), Payload: []byte("a\x00\xff"),
		RetryPolicy: &fermatav1.RetryPolicy{MaxAttempts: 4}})
	p := c.openTab(jobPlace(t, "job"))
	p.click("[data-edit]")
	p.waitText("h1", "Edit job")
	p.fill(field("priority"), "7")
	j, err := c.client.GetJob(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	j.Queue, j.Priority = "mail", new(int32(2))
	if _, err := c.client.UpdateJob(t.Context(), j, "queue", "priority"); err != nil {
		t.Fatal(err)
	}
	p.click("[data-save]")
	p.waitText("[data-stale]", "Somebody else has changed this job")
	p.waitText("[data-stale]", "mail")
	p.checkAccessibility("edit of a job that has changed")
	p.click("[data-rebase]")
	p.waitText(".stale", "You both changed priority")
	if queue := evaluate[string](p, `document.querySelector("`+field("queue")+`").value`); queue != "mail" {
		t.Errorf("the form has queue %q", queue)
	}
	p.waitText(".diff", "priority")
	p.checkForm("edit")
	p.click("[data-save]")
	p.waitText("main", "with warnings")
	j, err = c.client.GetJob(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	if j.GetPriority() != 7 || j.GetQueue() != "mail" || string(j.GetPayload()) != "a\x00\xff" || j.GetRetryPolicy().GetMaxAttempts() != 4 ||
		j.GetRetryPolicy().GetSources()["*"] != "built-in" {
		t.Errorf("the job is %v", j)
	}
}

// TestEditSurvivesALostConnection: a save without a response is repeated as the same request.
func TestEditSurvivesALostConnection(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab(jobPlace(t, "job") + "/edit")
	p.fill(field("priority"), "7")
	// The request arrives, the response does not.
	evaluate[bool](p, `(real => { window.fetch = async (url, init) => {
		if (init?.method !== "PATCH") return real(url, init);
		window.fetch = real; window.firstId = init.headers["X-Request-Id"];
		await real(url, init); throw new TypeError("lost"); }; return true })(window.fetch)`)
	p.click("[data-save]")
	p.waitText(".failed", "cannot be reached")
	if text := evaluate[string](p, `document.querySelector("`+field("priority")+`").value`); text != "7" {
		t.Errorf("the field has %q", text)
	}
	evaluate[bool](p, `(real => { window.fetch = (url, init) => {
		if (init?.method === "PATCH") window.secondId = init.headers["X-Request-Id"]; return real(url, init); }; return true })(window.fetch)`)
	p.focus("[data-save]") // by the keyboard: the remark that the job has the change already can move the button meanwhile
	p.press(kb.Enter)
	p.waitText("main", "with warnings")
	if ids := evaluate[string](p, `window.firstId + " " + window.secondId`); strings.Fields(ids)[0] != strings.Fields(ids)[1] {
		t.Errorf("the request ids are %s", ids)
	}
	j, err := c.client.GetJob(t.Context(), "job")
	if err != nil || j.GetPriority() != 7 {
		t.Errorf("priority %d, error %v", j.GetPriority(), err)
	}
}

// TestEditSurvivesTheEndOfASession: what was typed is saved after the next sign-in.
func TestEditSurvivesTheEndOfASession(t *testing.T) {
	admin, first, second := [2]string{"admin", "admin"}, [2]string{"first", "editor"}, [2]string{"second", "editor"}
	c, access := startGuardedCluster(t, accessText(admin, first, second))
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab(jobPlace(t, "job") + "/edit")
	p.signIn(testToken("first"))
	p.fill(field("priority"), "7")
	access(accessText(admin, second))
	p.waitText("dialog[open]", "The session has ended")
	p.signIn(testToken("second"))
	p.waitText(".who", "token:second")
	p.wait("the edit", `document.querySelector("`+field("priority")+`")?.value === "7"`)
	p.click("[data-save]")
	p.waitText("main", "with warnings")
	j, err := c.client.GetJob(t.Context(), "job")
	if err != nil || j.GetPriority() != 7 {
		t.Errorf("priority %d, error %v", j.GetPriority(), err)
	}
}

// TestViewerCannotEdit: the links and the buttons say why, and a sign-out leaves no draft.
func TestViewerCannotEdit(t *testing.T) {
	c, _ := startGuardedCluster(t, accessText([2]string{"admin", "admin"}, [2]string{"viewer", "viewer"}))
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab(jobPlace(t, "job"))
	p.signIn(testToken("viewer"))
	p.waitText("h1", "job")
	p.wait("a reason", `document.querySelector("[data-edit]").title.includes("permission to edit jobs")`)
	p.checkAccessibility("job of a viewer")
	p.goTo(jobPlace(t, "job") + "/edit")
	p.fill(field("priority"), "7")
	p.waitText(".diff", "priority")
	p.checkAccessibility("form of a viewer")
	p.click("[data-save]")
	p.waitText(".notices", "permission to edit jobs")
	p.click(".menu summary")
	p.click(".panel button")
	p.waitText("h1", "Sign in")
	if kept := evaluate[int](p, `Object.keys(sessionStorage).filter(k => k.startsWith("fermata.draft")).length`); kept != 0 {
		t.Errorf("%d drafts are kept after a sign-out", kept)
	}
	j, err := c.client.GetJob(t.Context(), "job")
	if err != nil || j.GetPriority() == 7 {
		t.Errorf("priority %d, error %v", j.GetPriority(), err)
	}
}

// TestStudioShowsWhatAnEditMoves: the times before and after an edit, and what clock changes do to them.
func TestStudioShowsWhatAnEditMoves(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Cron("0 2 * * *", "Europe/Berlin")})
	p := c.openTab(jobPlace(t, "job") + "/edit")
	p.waitText(".studio", "Next times")
	p.wait("clock changes", `document.querySelectorAll(".studio .chip").length >= 3`)
	p.fill(field("schedule.cron.expressions"), "30 2 * * *")
	p.waitText(".finding", "runs, adds 0 and removes 0")
	p.waitText(".times li.moved", "moves")
	p.wait("a strip that says what it shows", `[...document.querySelectorAll(".studio svg")].every(s => s.getAttribute("aria-label").includes("run"))`)
	p.checkForm("studio")
	evaluate[bool](p, `([...document.querySelectorAll(".studio .chip")].find(e => e.innerText.startsWith("Clocks forward")).click(), true)`)
	p.waitText(".times", "02:30 does not exist on this day")
	p.wait("the clock change on the day", `document.querySelectorAll(".studio .clock-change").length >= 3`)
	p.choose("[name='$schedule']", "interval")
	p.fill(field("schedule.interval.every"), "12h")
	p.waitText(".finding", "adds")
}

// TestJitterMovesNoScheduledTime: nothing but the phase that the nodes keep may move the times of an interval.
func TestJitterMovesNoScheduledTime(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab(jobPlace(t, "job") + "/edit")
	p.fill(field("schedule.jitter"), "5m")
	p.waitText(".finding", "changes none of these times")
	p.waitText(".times", "starts within 5 min")
	p.fill(field("schedule.interval.every"), "30m")
	p.waitText(".finding", "adds")
}
