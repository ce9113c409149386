package browsertest

import (
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestRestoreRevision compares a revision with the current definition, is refused over an edit that the comparison has
// not shown, and restores it.
func TestRestoreRevision(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("job", &client.Job{
		Handler: "none", Schedule: client.Every(time.Hour), Labels: map[string]string{"team": "a"}, Payload: []byte(`{"to":"ann"}`),
	})
	edit := func(field string, change func(j *client.Job)) {
		t.Helper()
		j, err := c.client.GetJob(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		change(j)
		if _, err := c.client.UpdateJob(t.Context(), j, field); err != nil {
			t.Fatal(err)
		}
	}
	edit("labels", func(j *client.Job) { j.Labels = map[string]string{"team": "b"} })
	edit("payload", func(j *client.Job) { j.Payload = []byte(`{"to":"bob"}`) })
	p := c.openTab(jobPlace(t, "job"))
	p.click("[data-compare='1']")
	p.waitText(".comparison tbody", "labels.team")
	p.waitText(".comparison thead", "Now")
	if text := p.text(".comparison tbody"); !strings.Contains(text, "payload.to\t\"ann\"\t\"bob\"") {
		t.Errorf("the differences are\n%s", text)
	}
	p.checkAccessibility("revisions")
	p.screenshot("revisions-light")

	p.click("[data-action=restore-revision]")
	p.waitText("dialog[open]", "it changes payload, labels")
	p.checkAccessibility("dialog of a restore")
	edit("handler", func(j *client.Job) { j.Handler = "other" }) // by somebody else
	p.click("dialog[open] [data-confirm]")
	p.waitText("dialog[open] [role=alert]", "was edited")
	p.click("dialog[open] [aria-label=Close]")
	p.click("[data-compare-again]")
	p.waitText(".comparison tbody", "handler")
	p.click("[data-action=restore-revision]")
	p.waitText("dialog[open]", "it changes handler, payload, labels")
	p.click("dialog[open] [data-confirm]")
	p.waitText(".notices", "has the definition of revision 1 again")
	redistest.Eventually(t, patience, "the restored definition", func() bool {
		j, err := c.client.GetJob(t.Context(), "job")
		return err == nil && j.GetLabels()["team"] == "a" && j.GetHandler() == "none"
	})
}
