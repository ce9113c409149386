package playground

import (
	"fmt"
	"strings"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/tui"
)

// everyJob asks for all jobs in large pages.
var everyJob = client.Filter{PageSize: jobsShown}

// show is what has been seen so far, on its way to an output.
type show struct {
	p        *playground
	out      output
	watcher  *watcher
	began    time.Time
	events   []event
	fresh    []event   // not yet shown
	trouble  error     // of the last listing
	partial  bool      // there are more jobs than were listed
	draining time.Time // since when; zero before
	aborted  bool
	bye      string // how it ended
}

// take learns from a listing.
func (s *show) take(l listing) {
	s.trouble = l.err
	if l.err != nil {
		return
	}
	s.partial = !l.complete
	s.add(s.watcher.see(l.at, l.rows, l.complete)...)
}

// command notes that somebody switched the target.
func (s *show) command(m mode) {
	s.add(event{at: time.Now(), job: "(target)", text: "now " + string(m)})
}

func (s *show) add(fresh ...event) {
	s.fresh = append(s.fresh, fresh...)
	s.events = append(s.events, fresh...)
	s.events = s.events[max(0, len(s.events)-eventsKept):]
}

func (s *show) update() {
	s.out.update(s.frame(), s.fresh)
	s.fresh = nil
}

// drain begins the end, once. From here on there are lines instead of a live
// view, so that the terminal is in order however the rest goes.
func (s *show) drain() {
	if !s.draining.IsZero() {
		return
	}
	if view, ok := s.out.(live); ok {
		view.end(s.frame())
		s.out = &lines{out: s.p.o.Out}
	}
	s.draining = time.Now()
	s.p.drainWorker()
	s.update()
}

// abort ends the draining, and everything that runs.
func (s *show) abort() {
	s.aborted = true
	s.drain()
	s.p.worker.Stop()
}

// farewell says how it ended. A worker that was told to stop and had to cut
// attempts off is no error.
func (s *show) farewell(err error) error {
	switch {
	case s.draining.IsZero():
		s.bye = "The worker ended by itself."
		return fmt.Errorf("the worker ended by itself: %w", err)
	case s.aborted:
		s.bye = "Stopped at once; nothing is kept."
	case err != nil:
		s.bye = "Stopped before everything had ended; nothing is kept."
	default:
		s.bye = fmt.Sprintf("Drained in %s; nothing is kept.", tui.Tidy(time.Since(s.draining)))
	}
	return nil
}

func (s *show) frame() frame {
	f := frame{
		now: time.Now(), up: time.Since(s.began), facts: s.p.facts, mode: s.p.target.current(),
		rows: s.watcher.sorted(), events: s.events, notice: s.notice(),
	}
	if s.partial {
		f.notice = strings.TrimSpace(f.notice + fmt.Sprintf(" There are more than %d jobs; the others run, but are not shown.", jobsShown))
	}
	return f
}

// notice says what is being waited for, or what is wrong.
func (s *show) notice() string {
	switch {
	case s.bye != "":
		return s.bye
	case !s.draining.IsZero():
		var waits []string
		for _, r := range s.watcher.sorted() {
			if r.phase == running {
				waits = append(waits, r.name)
			}
		}
		if len(waits) == 0 {
			return "Draining."
		}
		return "Draining: waiting for " + strings.Join(waits, ", ") + ". Ctrl-C again stops at once."
	case s.trouble != nil:
		return "The node does not answer: " + tui.Clean(s.trouble.Error())
	}
	return ""
}
