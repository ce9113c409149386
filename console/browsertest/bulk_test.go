package browsertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// createJobs registers so many jobs with a label.
func (c *cluster) createJobs(count int, label string) {
	c.t.Helper()
	for i := range count {
		c.createJob(fmt.Sprintf("%s-%03d", label, i), &client.Job{
			Handler: "none", Schedule: client.Every(time.Hour), Labels: map[string]string{"team": label},
		})
	}
}

// countPaused returns how many jobs with a label are paused.
func (c *cluster) countPaused(label string) int {
	c.t.Helper()
	n := 0
	for j, err := range c.client.Jobs(c.t.Context(), client.Filter{Expression: "labels.team = " + label}) {
		if err != nil {
			c.t.Fatal(err)
		}
		if j.GetStatus().GetPauseTime() != nil {
			n++
		}
	}
	return n
}

// holdPages lets the first page of a change through, and holds the others until the page is loaded again.
const holdPages = `const send = window.fetch; let pages = 0;
	window.fetch = (url, init) => String(url).includes(":bulk") && !String(init.body).includes("dryRun") && ++pages > 1
		? new Promise(() => {}) : send(url, init); true`

// TestBulkPauseGoesOnAfterAReload counts the matches of a filter, pauses them page by page, loses the page in between,
// and continues. Jobs that do not match stay as they are.
func TestBulkPauseGoesOnAfterAReload(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJobs(300, "a")
	c.createJobs(3, "b")
	p := c.openTab("#/jobs?filter=labels.team+%3D+a&namespace=" + namespaceOf(t))
	p.waitText("tbody", "a-")
	evaluate[bool](p, holdPages)
	p.click(".bulk-menu summary")
	p.click("[data-bulk=BulkPauseJobs]")
	p.waitText("dialog[open] [data-confirm]", "Pause 300 jobs")
	p.waitText("dialog[open] .matches", "The first 20")
	p.checkAccessibility("dialog of a change of many")
	p.typeInto("dialog[open] input[name=note]", "outage")
	p.waitText("dialog[open]", "Not counted yet") // a confirmation is for the options that it was counted with
	p.click("dialog[open] [data-count]")
	p.waitText("dialog[open] [data-confirm]", "Pause 300 jobs")
	p.screenshot("bulk-dialog")
	p.click("dialog[open] [data-confirm]")
	// A page has up to 250 matches, and fewer if the search takes long.
	const progress = `document.querySelector("[data-change=running] [role=status]")?.innerText`
	p.wait("the end of the first page", `/^[1-9]\d* of 300 jobs paused so far/.test(`+progress+`)`)
	first := evaluate[int](p, `parseInt(`+progress+`)`)
	p.checkAccessibility("progress of a change of many")
	p.screenshot("bulk-progress")

	p.reload()
	p.waitText("[data-change=stopped]", fmt.Sprintf("Not finished: %d of 300 jobs paused", first))
	if n := c.countPaused("a"); n != first {
		t.Errorf("%d jobs are paused before the change continues, want %d", n, first)
	}
	p.click("[data-continue]")
	p.waitText("[data-change=done]", "Done: 300 jobs paused")
	if a, b := c.countPaused("a"), c.countPaused("b"); a != 300 || b != 0 {
		t.Errorf("%d and %d jobs are paused, want 300 and 0", a, b)
	}

	// A resumption knows the pause that it undoes.
	p.click(".bulk-menu summary")
	p.click("[data-bulk=BulkResumeJobs]")
	p.waitText("dialog[open] [data-confirm]", "Resume 300 jobs")
	if id := evaluate[string](p, `document.querySelector("dialog[open] input[name=pauseId]").value`); id == "" {
		t.Error("the dialog does not name the pause")
	}
	p.click("dialog[open] [data-confirm]")
	p.waitText("[data-change=done]", "Done: 300 jobs resumed")
	if n := c.countPaused("a"); n != 0 {
		t.Errorf("%d jobs are still paused", n)
	}
}

// TestBulkDeletionIsTyped: what cannot be undone needs the number of matches.
func TestBulkDeletionIsTyped(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJobs(21, "old")
	c.createJobs(1, "new")
	p := c.openTab("#/jobs?filter=labels.team+%3D+old&namespace=" + namespaceOf(t))
	p.waitText("tbody", "old-")
	p.click(".bulk-menu summary")
	p.click("[data-bulk=BulkDeleteJobs]")
	p.waitText("dialog[open] [data-confirm]", "Delete 21 jobs")
	if !evaluate[bool](p, `document.querySelector("dialog[open] [data-confirm]").disabled`) {
		t.Error("the deletion needs no number")
	}
	p.typeInto("dialog[open] input[name=typed]", "21")
	p.click("dialog[open] [data-confirm]:enabled")
	p.waitText("[data-change=done]", "Done: 21 jobs deleted")
	p.waitText(".empty", "No job matches")
	if _, err := c.client.GetJob(t.Context(), "new-000"); err != nil {
		t.Error(err)
	}
}

// TestRefusalsOfABulkChange: what could not be changed is counted, with the reason and the names.
func TestRefusalsOfABulkChange(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	excluded := client.Every(time.Hour)
	excluded.Exclusions = &fermatav1.Exclusions{Periods: []*fermatav1.Exclusions_Period{{
		StartTime: timestamppb.New(time.Now().Add(-24 * time.Hour)), EndTime: timestamppb.New(time.Now().Add(24 * time.Hour)),
	}}}
	c.createJob("never", &client.Job{Handler: "none", Schedule: excluded})
	c.createJob("fine", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab("#/jobs?namespace=" + namespaceOf(t))
	p.waitText("tbody", "fine")
	p.click(".bulk-menu summary")
	p.click("[data-bulk=BulkRunJobs]")
	p.waitText("dialog[open] [data-confirm]", "Run 2 jobs")
	p.click("dialog[open] [data-confirm]")
	p.waitText("[data-change=done]", "Done: 1 of 2 jobs started, 1 refused")
	p.click("[data-change=done] details summary")
	p.waitText("[data-change=done] li", "never")
	p.checkAccessibility("refusals of a change of many")
	p.click("[data-forget]")
	p.waitGone("[data-change]")
}

// TestBulkChangesOfDeadLetters discards those of one error, and redrives all others.
func TestBulkChangesOfDeadLetters(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.startWorker()
	for _, id := range []string{"one", "two", "three"} {
		c.createJob(id, &client.Job{Handler: "fail", Schedule: client.Once(time.Now())})
	}
	p := c.openTab("#/dead-letters?by=job&namespace=" + namespaceOf(t))
	p.wait("three groups", `document.querySelectorAll("tbody tr").length === 3`)
	p.click("tbody tr:has(a[href$='/one']) [data-bulk=BulkDiscardDeadLetters]")
	p.waitText("dialog[open] [data-confirm]", "Discard 1 dead letter")
	filter := evaluate[string](p, `document.querySelector("dialog[open] input[name=filter]").value`)
	if filter != `id = "one"` {
		t.Errorf("the filter is %s", filter)
	}
	p.checkAccessibility("dialog of a discard")
	p.click("dialog[open] [data-confirm]")
	p.waitText("[data-change=done]", "Done: 1 dead letter discarded")
	if _, err := c.client.GetJob(t.Context(), "one"); err == nil {
		t.Error("the discarded one-time job is still there")
	}
	p.click(".bulk-menu summary")
	p.click(".bulk [data-bulk=BulkRedriveDeadLetters]")
	p.waitText("dialog[open] [data-confirm]", "Redrive 2 dead letters")
	p.click("dialog[open] [data-confirm]")
	p.waitText(".notices", "2 dead letters redriven")
	redistest.Eventually(t, patience, "second runs", func() bool {
		j, err := c.client.GetJob(t.Context(), "two")
		return err == nil && j.GetStatus().GetDeadTotal() > 1
	})
}

// TestGroupOfAnError: the filter of a group of dead letters selects those with the same error, and no others.
func TestGroupOfAnError(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.startWorker()
	c.createJob("one", &client.Job{Handler: "fail", Schedule: client.Once(time.Now())})
	p := c.openTab("#/dead-letters?namespace=" + namespaceOf(t))
	p.waitText("tbody", "the disk is full")
	p.click("tbody [data-bulk=BulkDiscardDeadLetters]")
	p.waitText("dialog[open] [data-confirm]", "Discard 1 dead letter")
	filter := evaluate[string](p, `document.querySelector("dialog[open] input[name=filter]").value`)
	if !strings.Contains(filter, `last_error = "the disk is full"`) {
		t.Errorf("the filter is %s", filter)
	}
	p.focus("dialog[open] input[name=filter]")
	evaluate[bool](p, "document.activeElement.select(), true")
	p.press(`last_error = "another"`)
	p.click("dialog[open] [data-count]")
	p.waitText("dialog[open] .matches", "No dead letter matches")
}

// TestRowsThatLeaveTheListWhileHeld deletes a job while the keyboard focus holds the rows of the list: its row stays in
// place, is marked, and can be read in both themes.
func TestRowsThatLeaveTheListWhileHeld(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJobs(3, "a")
	p := c.openTab("#/jobs?namespace=" + namespaceOf(t))
	p.waitText("tbody", "a-002")
	p.focus("tbody th a")
	if err := c.client.DeleteJob(t.Context(), "a-001", client.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.waitText("tbody tr.gone th", "a-001")
	if text := p.text("tbody tr.gone th .hidden"); !strings.Contains(text, "no longer listed") {
		t.Errorf("a screen reader reads %q after the name of the job", text)
	}
	for _, theme := range []string{"light", "dark"} {
		p.setTheme(theme)
		p.checkAccessibility("a row that left the list, " + theme)
	}
}
