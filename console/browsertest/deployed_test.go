package browsertest

import (
	"os"
	"testing"
)

// TestDeployedConsole opens a console that is deployed with a cluster: CONSOLE_URL is its address, and CONSOLE_TOKEN the
// token of a person. The cluster has three nodes and the job console-trial, which the test pauses. `make kube-test` runs it.
func TestDeployedConsole(t *testing.T) {
	address := os.Getenv("CONSOLE_URL")
	if address == "" {
		t.Skip("CONSOLE_URL does not name a console")
	}
	c := &cluster{t: t, url: address}
	p := c.openTab("#/cluster")
	p.signIn(os.Getenv("CONSOLE_TOKEN"))
	p.waitText("h1", "Cluster")
	p.wait("three nodes", `["fermata-0", "fermata-1", "fermata-2"].every(n => document.querySelector("main").innerText.includes(n))`)
	p.goTo("#/jobs?filter=queue+%3D+reports")
	p.waitText("tbody", "console-trial")
	p.checkAccessibility("jobs of a deployed console")
	p.goTo("#/namespaces/default/jobs/console-trial")
	p.waitText("h1", "console-trial")
	p.click("[data-action=pause-job]")
	p.waitText("dialog[open]", "Pause console-trial")
	p.click("dialog[open] [data-confirm]")
	p.waitText(".notices", "is paused")
}
