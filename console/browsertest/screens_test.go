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

// screens are the places of the console that need no more than a job. A screen with more needs has a test of its own.
var screens = []struct{ name, place string }{
	{"overview", "#/"},
	{"jobs", "#/jobs"},
	{"runs", "#/runs"},
	{"upcoming", "#/upcoming"},
	{"load", "#/load"},
	{"queues", "#/queues"},
	{"targets", "#/targets"},
	{"dead-letters", "#/dead-letters"},
	{"cluster", "#/cluster"},
	{"events", "#/events"},
	{"webhooks", "#/webhooks"},
	{"audit", "#/audit"},
}

// TestScreensAreAccessible looks at each screen in both themes, wide and narrow.
func TestScreensAreAccessible(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.startWorker()
	c.createJob("works", &client.Job{Handler: "ok", Schedule: client.Every(time.Second)})
	c.createJob("breaks", &client.Job{Handler: "fail", Schedule: client.Every(time.Second)})
	c.createJob("later", &client.Job{Handler: "ok", Schedule: client.Cron("0 9 * * *", "Europe/Berlin")})
	p := c.openTab("#/jobs?namespace=" + namespaceOf(t))
	p.waitText("tbody", "backing off")
	for _, s := range screens {
		p.goTo(s.place + "?namespace=" + namespaceOf(t))
		p.waitGone(".loading")
		for _, theme := range []string{"light", "dark"} {
			p.setTheme(theme)
			for _, width := range []int64{1440, 360} {
				p.setSize(width, 900)
				p.checkAccessibility(s.name + ", " + theme)
				if wide := evaluate[int64](p, `document.documentElement.scrollWidth`); wide > width {
					t.Errorf("%s: the page is %d wide in a window of %d", s.name, wide, width)
				}
			}
			p.setSize(1440, 900)
			p.screenshot(s.name + "-" + theme)
		}
	}
}

// TestFilterIsInTheLink: a filter is a link that others can open, and an invalid one says what is wrong.
func TestFilterIsInTheLink(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	for _, id := range []string{"alpha", "beta"} {
		c.createJob(id, &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	}
	p := c.openTab("#/jobs?namespace=" + namespaceOf(t))
	p.waitText("tbody", "beta")
	p.typeInto(".filter input", "id = alpha")
	p.press(kb.Enter)
	redistest.Eventually(t, patience, "one job", func() bool { return !strings.Contains(p.text("tbody"), "beta") })
	link := evaluate[string](p, "location.hash")
	other := c.openTab(link)
	other.waitText("tbody", "alpha")
	if text := other.text("tbody"); strings.Contains(text, "beta") {
		t.Errorf("the link %s shows\n%s", link, text)
	}
	p.typeInto(".filter input", " AND colour = red")
	p.press(kb.Enter)
	p.waitText(".filter [role=alert]", "colour")
	p.checkAccessibility("invalid filter")
}

// TestRowsStayUnderThePointer: an update must not put another job under a click.
func TestRowsStayUnderThePointer(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("second", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab("#/jobs?order=id&namespace=" + namespaceOf(t))
	p.waitText("tbody", "second")
	p.focus("tbody th a")
	c.createJob("first", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p.waitText(".waiting", "row")
	if text := p.text("tbody tr:first-child th"); text != "second" {
		t.Errorf("while the table has the focus, its first row is %q", text)
	}
	p.focus(".filter input")
	p.waitText("tbody tr:first-child th", "first")
}

// TestTextsAreNotMarkup: texts of jobs appear as they are.
func TestTextsAreNotMarkup(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	const note = `<script>alert(1)</script> "quoted" ` + "\u202ereversed\u202c" + ` <img src=x onerror=alert(2)>`
	c.createJob("marked", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	if _, err := c.client.PauseJob(t.Context(), "marked", client.PauseOptions{Note: note}); err != nil {
		t.Fatal(err)
	}
	p := c.openTab("#/jobs?namespace=" + namespaceOf(t))
	p.waitText("tbody", `<script>alert(1)</script> "quoted"`)
	if n := evaluate[int](p, `document.querySelectorAll("tbody script, tbody img").length`); n != 0 {
		t.Errorf("%d elements were made of the note", n)
	}
}

// TestBelowABasePath: all links and calls are relative.
func TestBelowABasePath(t *testing.T) {
	c := startCluster(t, gateway.Options{BasePath: "/ops/fermata"})
	c.createJob("there", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab("#/jobs?namespace=" + namespaceOf(t))
	p.waitText("tbody", "there")
}

// TestKeyboard: all of the frame works without a mouse.
func TestKeyboard(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	for _, id := range []string{"a", "b"} {
		c.createJob(id, &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	}
	p := c.openTab("#/?namespace=" + namespaceOf(t))
	// The console forgets the first key of a sequence after 1.5 s, which a busy machine may take for the second.
	redistest.Eventually(t, patience, "the list of jobs", func() bool {
		p.press("g")
		p.press("j")
		return strings.Contains(p.text("h1"), "Jobs")
	})
	p.waitText("tbody", "b")
	p.press("?")
	p.waitText("dialog[open]", "Go to Jobs")
	p.checkAccessibility("keys")
	p.press(kb.Escape)
	p.waitGone("dialog[open]")
	p.focus("tbody th a")
	first := p.focused()
	p.press(kb.ArrowDown)
	if second := p.focused(); second == first {
		t.Errorf("the arrow key leaves the focus at %q", first)
	}
}

// TestHarnessFindsFaults: a tab that reports nothing must have looked.
func TestHarnessFindsFaults(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	p := c.openTab("#/jobs")
	evaluate[bool](p, `document.querySelector("main").append(document.createElement("input")), console.warn("seen"),
		fetch("http://127.0.0.1:1/").catch(() => {}), true`)
	if found := p.findViolations(); len(found) == 0 {
		t.Error("axe-core does not miss the label of an input")
	}
	var seen [2]bool
	redistest.Eventually(t, patience, "a message and a violated policy", func() bool {
		text := strings.Join(p.takeFaults(), "\n")
		seen[0], seen[1] = seen[0] || strings.Contains(text, "seen"), seen[1] || strings.Contains(text, "connect-src")
		return seen[0] && seen[1]
	})
}
