package browsertest

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestQueueLimits sets limits, and refuses to set them over a change that the page has not shown.
func TestQueueLimits(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("job", &client.Job{Handler: "none", Queue: "mail", Schedule: client.Every(time.Hour)})
	p := c.openTab("#/namespaces/" + namespaceOf(t) + "/queues/mail")
	p.waitText("h1", "mail")
	p.click("[data-action=limit-queue]")
	p.waitText("dialog[open]", "Live runs at once")
	p.checkAccessibility("dialog of limits")
	p.press("20")
	p.press(kb.Enter)
	p.waitText(".facts", "of 20")
	settings, err := c.client.Admin().QueueSettings(t.Context(), "mail")
	if err != nil || settings.GetMaxConcurrency() != 20 {
		t.Errorf("limits %v, error %v", settings, err)
	}
	p.click("[data-action=pause-queue]")
	p.waitText("dialog[open]", "No run of the queue starts")
	p.press(kb.Enter)
	p.waitText(".head", "paused")
}

// TestQueueIsPausedUntil: a pause has an end, which can be changed and removed.
func TestQueueIsPausedUntil(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("job", &client.Job{Handler: "none", Queue: "mail", Schedule: client.Every(time.Hour)})
	p := c.openTab("#/namespaces/" + namespaceOf(t) + "/queues/mail")
	p.click("[data-action=pause-queue]")
	p.typeInto("dialog[open] input[name=for]", "2h")
	p.checkAccessibility("dialog of a pause")
	p.press(kb.Enter)
	p.waitText(".sentence", "The nodes resume it at")
	settings, err := c.client.Admin().QueueSettings(t.Context(), "mail")
	if left := time.Until(settings.GetPauseUntilTime().AsTime()); err != nil || left < time.Hour || left > 2*time.Hour {
		t.Errorf("the pause ends in %s, error %v", left, err)
	}
	// A change of the limits keeps the end.
	p.waitGone("dialog[open]")
	p.click("[data-action=limit-queue]")
	p.waitText("dialog[open]", "Live runs at once")
	p.press("20" + kb.Enter)
	p.waitText(".facts", "of 20")
	settings, err = c.client.Admin().QueueSettings(t.Context(), "mail")
	if err != nil || settings.GetPauseUntilTime() == nil || settings.GetMaxConcurrency() != 20 {
		t.Errorf("settings %v, error %v", settings, err)
	}
	p.waitGone("dialog[open]")
	p.click("[data-action=set-pause-end]")
	p.waitText("dialog[open]", "until it is resumed")
	p.click("dialog[open] [data-confirm]")
	p.waitText(".notices", "paused until it is resumed")
	settings, err = c.client.Admin().QueueSettings(t.Context(), "mail")
	if err != nil || !settings.GetPaused() || settings.GetPauseUntilTime() != nil {
		t.Errorf("settings %v, error %v", settings, err)
	}
	p.waitGone("dialog[open]")
	p.click("[data-action=set-pause-end]")
	p.typeInto("dialog[open] input[name=for]", "1h"+kb.Enter)
	p.waitText(".sentence", "The nodes resume it at")
	p.waitGone("dialog[open]") // which may close after the end of the pause is shown
	p.click("[data-action=resume-queue]")
	p.click("dialog[open] [data-confirm]")
	p.waitText(".notices", "Queue mail goes on")
}

// TestRedrive redrives the dead letters of one error.
func TestRedrive(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.startWorker()
	for _, id := range []string{"one", "two"} {
		c.createJob(id, &client.Job{Handler: "fail", Schedule: client.Once(time.Now())})
	}
	p := c.openTab("#/dead-letters?namespace=" + namespaceOf(t))
	p.waitText("tbody td.num", "2")
	p.waitText("tbody", "the disk is full")
	p.click("[data-action=redrive]")
	p.waitText("dialog[open]", "Redrive 2 dead letters")
	p.checkAccessibility("dialog of a redrive")
	p.click("dialog[open] [data-confirm]")
	p.waitText(".notices", "2 runs again")
	redistest.Eventually(t, patience, "a second run", func() bool {
		j, err := c.client.GetJob(t.Context(), "two")
		return err == nil && j.GetStatus().GetDeadTotal() > 1
	})
}

// TestEventsAppear: events come without a reload, and those before the page was opened are there.
func TestEventsAppear(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("before", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab("#/events?kinds=job.*&namespace=" + namespaceOf(t))
	p.waitText("tbody", "before")
	p.waitText("main", "live")
	c.createJob("after", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p.waitText("tbody tr:first-child", "after")
	if text := p.text("tbody"); !strings.Contains(text, "job.created") {
		t.Errorf("the list has\n%s", text)
	}
}
