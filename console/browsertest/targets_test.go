package browsertest

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestTargetIsReset: a target that fails is shown with what it holds back, and is up again after a reset.
func TestTargetIsReset(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.startWorker()
	c.createJob("breaks", &client.Job{Handler: "unavailable", Schedule: client.Every(time.Hour), Target: "api.example.com"})
	c.createJob("held", &client.Job{Handler: "ok", Schedule: client.Every(time.Hour), Target: "api.example.com"})
	if _, _, err := c.client.RunJob(t.Context(), "breaks", client.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	p := c.openTab("#/targets?namespace=" + namespaceOf(t))
	p.waitText("tbody", "down: its runs wait")
	p.waitText(".sentence", "1 target is down")
	p.waitText("tbody", "the disk is full")
	p.waitText("tbody", "of 2")
	p.checkAccessibility("targets")
	p.click("[data-action=reset-target]")
	p.waitText("dialog[open]", "Its failures are forgotten")
	p.checkAccessibility("dialog of a reset")
	p.click("dialog[open] [data-confirm]")
	p.waitText(".notices", "Target api.example.com is reset")
	p.waitText(".sentence", "No target is down")
	if !evaluate[bool](p, `document.querySelector("[data-action=probe-target]").ariaDisabled === "true"`) {
		t.Error("a target that is up can be probed")
	}
}

// TestLocksShowHoldersAndWaiters: who has a lock, and who comes next.
func TestLocksShowHoldersAndWaiters(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.startWorker()
	locks := []*fermatav1.Lock{{Key: "ledger"}}
	for _, id := range []string{"holder", "waiter"} {
		c.createJob(id, &client.Job{Handler: "wait", Schedule: client.Every(time.Hour), Locks: locks})
	}
	if _, _, err := c.client.RunJob(t.Context(), "holder", client.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	p := c.openTab("#/targets?namespace=" + namespaceOf(t))
	p.waitText("ul.people", "holder")
	p.waitText("ul.people", "at worker w-"+namespaceOf(t))
	if _, _, err := c.client.RunJob(t.Context(), "waiter", client.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	p.waitText("ol.people", "waiter")
	p.waitText(".sentence", "1 run waits for a lock")
	p.waitText("td.num", "1 of 1")
	p.checkAccessibility("locks")
	p.screenshot("targets-light")
	p.click("ul.people a[href*='/runs/']")
	p.waitText("h1", "Run of")
}
