package browsertest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
)

// TestWhatFailed lists failed runs of all jobs in a window that the link has, and none outside of it.
func TestWhatFailed(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.startWorker()
	c.createJob("one", &client.Job{Handler: "fail", Schedule: client.Once(time.Now())})
	c.createJob("two", &client.Job{Handler: "fail", Schedule: client.Once(time.Now())})
	c.createJob("fine", &client.Job{Handler: "ok", Schedule: client.Once(time.Now())})
	namespace := "namespace=" + namespaceOf(t)
	p := c.openTab("#/?" + namespace)
	p.click("a[href*='outcome=failed']")
	p.waitText("h1", "Runs")
	p.waitText(".sentence", "2 runs of 2 jobs")
	if outcome := evaluate[string](p, `document.querySelector("select[aria-label=Outcome]").value`); outcome != "failed" {
		t.Errorf("the outcome is %q", outcome)
	}
	p.waitText(".run-groups tbody", "the disk is full")
	p.checkAccessibility("runs")
	p.screenshot("runs-light")
	p.setSize(360, 900)
	p.checkAccessibility("runs, narrow")
	if wide := evaluate[int64](p, `document.documentElement.scrollWidth`); wide > 360 {
		t.Errorf("the page is %d wide in a window of 360", wide)
	}
	p.setSize(1440, 900)

	p.typeInto("input[aria-label=Queue]", "mail\r")
	p.waitText(".empty", "No run ended so")
	if place := evaluate[string](p, "location.hash"); !strings.Contains(place, "queue=mail") {
		t.Errorf("the link is %s", place)
	}
	window := func(since, until time.Time) string {
		return fmt.Sprintf("#/runs?%s&since=%s&until=%s", namespace,
			url.QueryEscape(since.Format(time.RFC3339)), url.QueryEscape(until.Format(time.RFC3339)))
	}
	p.goTo("#/runs?queue=default&filter=id+%3D+two&" + namespace)
	p.waitText(".sentence", "1 run of 1 job")
	p.goTo(window(time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)))
	p.waitText(".empty", "No run ended so")
	p.goTo(window(time.Now().Add(-time.Hour), time.Now().Add(time.Hour)))
	p.waitText(".sentence", "2 runs of 2 jobs")
	p.goTo("#/runs?outcome=succeeded&" + namespace)
	p.waitText("main", "fine")
}
