package browsertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestConsoleWhileANodeIsKilled: each screen stays, live screens go on, an edit is kept, and an action during the crash
// is done once.
func TestConsoleWhileANodeIsKilled(t *testing.T) {
	c := startProcesses(t)
	ns := namespaceOf(t)
	c.createJob("works", &client.Job{Handler: "ok", Schedule: client.Every(200 * time.Millisecond)})
	c.createJob("breaks", &client.Job{Handler: "fail", Schedule: client.Every(time.Second)})
	c.createJob("manual", &client.Job{Handler: "ok"})
	overview := c.openTab("#/?namespace=" + ns)
	overview.waitText("main", "node-3")
	overview.wait("all shards on the overview", `document.querySelectorAll("main .squares i").length === 12`)
	events := c.openTab("#/events?namespace=" + ns)
	events.waitText("main", "works")
	edit := c.openTab(jobPlace(t, "works") + "/edit")
	edit.fill(field("priority"), "7")
	manual := c.openTab(jobPlace(t, "manual"))
	manual.click("[data-action=run-job]")
	manual.waitText("dialog[open]", "Run manual now")

	c.nodes[2].kill()
	manual.click("dialog[open] [data-confirm]")
	manual.wait("the end of the action, or the button to repeat it", `!document.querySelector("dialog[open]") || !!document.querySelector("dialog[open] .failed")`)
	if manual.text("dialog[open]") != "" {
		manual.click("dialog[open] [data-confirm]")
		manual.waitGone("dialog[open]")
	}
	edit.click("[data-save]")
	edit.wait("the end of the save, or an error", `!document.querySelector("[data-save]") || !!document.querySelector("main .failed")`)
	if evaluate[bool](edit, `!!document.querySelector("[data-save]")`) {
		if kept := evaluate[string](edit, fmt.Sprintf(`document.querySelector(%q).value`, field("priority"))); kept != "7" {
			t.Errorf("after a failed save the form has priority %q", kept)
		}
		edit.click("[data-save]")
	}
	overview.wait("the loss of the node", `(t => !t.includes("node-3") || t.includes("cannot be reached"))(document.querySelector("main").innerText)`)
	overview.wait("all shards are held", `document.querySelectorAll("main .squares i").length === 12`)
	seen := evaluate[string](events, `document.querySelector("main tbody tr")?.innerText ?? ""`)
	events.wait("further events", fmt.Sprintf(`(document.querySelector("main tbody tr")?.innerText ?? "") !== %q`, seen))
	redistest.Eventually(t, patience, "what was typed is stored", func() bool {
		j, err := c.client.GetJob(t.Context(), "works")
		return err == nil && j.GetPriority() == 7
	})
	redistest.Eventually(t, patience, "one run", func() bool {
		j, err := c.client.GetJob(t.Context(), "manual")
		return err == nil && j.GetStatus().GetRunsTotal() == 1
	})
	for _, s := range screens {
		overview.goTo(s.place + "?namespace=" + ns)
		overview.waitGone(".loading")
		if text := overview.text("main"); !strings.Contains(text, "\n") {
			t.Errorf("%s is blank: %q", s.name, text)
		}
	}
	if runs, err := c.client.Runs(t.Context(), "manual"); err != nil || len(runs) != 1 {
		t.Errorf("%d runs of one action (%v)", len(runs), err)
	}
}

// TestTwoTabs: an edit that was made in another tab is not overwritten.
func TestTwoTabs(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	first := c.openTab(jobPlace(t, "job") + "/edit")
	first.fill(field("priority"), "3")
	second := c.openTab(jobPlace(t, "job") + "/edit")
	second.fill(field("priority"), "4")
	second.click("[data-save]")
	second.waitGone("[data-save]")
	first.click("[data-save]")
	first.waitText("main", "Somebody else has changed this job")
	j, err := c.client.GetJob(t.Context(), "job")
	if err != nil || j.GetPriority() != 4 {
		t.Errorf("priority %d, error %v", j.GetPriority(), err)
	}
	if kept := evaluate[string](first, fmt.Sprintf(`document.querySelector(%q).value`, field("priority"))); kept != "3" {
		t.Errorf("the first tab has priority %q", kept)
	}
}
