package browsertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
)

// TestEventsRenderTheScreenOnly: of a long list only the rows on the screen are elements of the page. Those further down
// come when the page is scrolled there.
func TestEventsRenderTheScreenOnly(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	const count = 200
	jobs := make([]client.NewJob, count)
	for i := range jobs {
		jobs[i] = client.NewJob{ID: fmt.Sprintf("job-%03d", i), Job: &client.Job{Handler: "none", Schedule: client.Every(time.Hour)}}
	}
	if _, err := c.client.CreateJobs(t.Context(), jobs, client.CreateJobsOptions{NamesOnly: true}); err != nil {
		t.Fatal(err)
	}
	p := c.openTab("#/events?kinds=job.created&namespace=" + namespaceOf(t))
	p.wait("all events", fmt.Sprintf(`document.querySelector("table")?.ariaRowCount === "%d" || document.querySelector("table")?.getAttribute("aria-rowcount") === "%d"`, count+1, count+1))
	p.wait("a window of rows", `document.querySelectorAll("tbody:not(.spacer) tr").length < 80`)
	p.checkAccessibility("a long list of events")
	last := evaluate[int](p, `+[...document.querySelectorAll("[aria-rowindex]")].at(-1).getAttribute("aria-rowindex")`)
	height := evaluate[int64](p, `document.documentElement.scrollHeight`)
	if height < 20*count {
		t.Errorf("the page is %d high: the rows that are not rendered take no room", height)
	}
	evaluate[bool](p, `scrollTo(0, document.documentElement.scrollHeight), true`)
	p.wait("the last row", fmt.Sprintf(`[...document.querySelectorAll("[aria-rowindex]")].at(-1).getAttribute("aria-rowindex") === "%d"`, count+1))
	p.wait("a window of rows at the end", `document.querySelectorAll("tbody:not(.spacer) tr").length < 80`)
	if last > count {
		t.Errorf("before it was scrolled, the page had %d rows of %d", last, count)
	}
	if now := evaluate[int64](p, `document.documentElement.scrollHeight`); max(now-height, height-now) > 40 {
		t.Errorf("the page is %d high at its end, and was %d at its beginning", now, height)
	}
}

// TestEventsRestWhileHidden: a page that nobody sees reads no events, and shows them later.
func TestEventsRestWhileHidden(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	create := func(id string) {
		c.createJob(id, &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	}
	create("before")
	p := c.openTab("#/events?kinds=job.created&namespace=" + namespaceOf(t))
	p.waitText("tbody", "before")
	evaluate[bool](p, `window.streams = [], window.plainFetch = window.fetch, window.fetch = (url, init) => {
		if (String(url).includes("events")) window.streams.push(init.signal);
		return window.plainFetch(url, init);
	}, true`)
	p.setHidden(true)
	create("hidden")
	p.setHidden(false)
	p.waitText("tbody", "hidden")
	p.waitText("tbody", "before")
	p.setHidden(true)
	p.wait("the end of all streams", `window.streams.length > 0 && window.streams.every(s => s.aborted)`)
	p.setHidden(false)
	create("after")
	p.waitText("tbody", "after")
	if n := evaluate[int](p, `[...document.querySelectorAll("tbody tr")].filter(r => r.innerText.includes("hidden")).length`); n != 1 {
		t.Errorf("one event is in %d rows", n)
	}
}

// setHidden has the page believe that its tab is in the background, or not.
func (p *tab) setHidden(hidden bool) {
	p.t.Helper()
	evaluate[bool](p, fmt.Sprintf(`Object.defineProperty(document, "hidden", {value: %v, configurable: true}),
		document.dispatchEvent(new Event("visibilitychange"))`, hidden))
}
