package playground

import (
	"fmt"
	"strings"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/tui"
)

// allJobs asks for all jobs in large pages.
var allJobs = client.Filter{PageSize: maxJobsShown}

// session is what has been seen so far, on its way to an output.
type session struct {
	p        *playground
	out      display
	watcher  *jobWatcher
	began    time.Time
	events   []jobEvent
	fresh    []jobEvent // not yet shown
	trouble  error      // of the last listing
	partial  bool       // there are more jobs than were listed
	draining time.Time  // since when; zero before
	aborted  bool
	bye      string // how it ended
}

// applyListing learns from a listing.
func (s *session) applyListing(l listing) {
	s.trouble = l.err
	if l.err != nil {
		return
	}
	s.partial = !l.complete
	s.addEvents(s.watcher.compareListing(l.at, l.rows, l.complete)...)
}

// setMode records that the target was switched.
func (s *session) setMode(m targetMode) {
	s.addEvents(jobEvent{at: time.Now(), job: "(target)", text: "now " + string(m)})
}

func (s *session) addEvents(fresh ...jobEvent) {
	s.fresh = append(s.fresh, fresh...)
	s.events = append(s.events, fresh...)
	s.events = s.events[max(0, len(s.events)-maxEvents):]
}

func (s *session) updateDisplay() {
	s.out.showUpdate(s.currentFrame(), s.fresh)
	s.fresh = nil
}

// beginDrain begins the end, once. From here on there are lines instead of a live
// view, so that the terminal is in order however the rest goes.
func (s *session) beginDrain() {
	if !s.draining.IsZero() {
		return
	}
	if view, ok := s.out.(liveDisplay); ok {
		view.showLast(s.currentFrame())
		s.out = &lineDisplay{out: s.p.options.Out}
	}
	s.draining = time.Now()
	s.p.drainWorker()
	s.updateDisplay()
}

// abortDrain ends the draining, and everything that runs.
func (s *session) abortDrain() {
	s.aborted = true
	s.beginDrain()
	s.p.worker.Abort()
}

// endSession returns how the session ended. A worker that was stopped and cut attempts off is not an error.
func (s *session) endSession(err error) error {
	switch {
	case s.draining.IsZero():
		s.bye = "The worker ended by itself."
		return fmt.Errorf("the worker ended by itself: %w", err)
	case s.aborted:
		s.bye = "Stopped at once; nothing is kept."
	case err != nil:
		s.bye = "Stopped before everything had ended; nothing is kept."
	case len(s.p.foreignRuns) > 0:
		s.bye = fmt.Sprintf("The worker of the playground has drained. Waiting up to %s for %s. Ctrl-C again stops at "+
			"once.", tui.FormatDuration(stopTimeout), strings.Join(s.p.foreignRuns, ", "))
	default:
		s.bye = fmt.Sprintf("Drained in %s; nothing is kept.", tui.FormatDuration(time.Since(s.draining)))
	}
	return nil
}

func (s *session) currentFrame() frame {
	f := frame{
		now: time.Now(), up: time.Since(s.began), facts: s.p.facts, mode: s.p.target.currentMode(),
		rows: s.watcher.sortedRows(), events: s.events, notice: s.currentNotice(),
	}
	if s.partial {
		f.notice = strings.TrimSpace(f.notice + fmt.Sprintf(" There are more than %d jobs; the others run, but are "+
			"not shown.", maxJobsShown))
	}
	return f
}

// currentNotice returns what the playground waits for, or the current error.
func (s *session) currentNotice() string {
	switch {
	case s.bye != "":
		return s.bye
	case !s.draining.IsZero():
		var waits []string
		for _, r := range s.watcher.sortedRows() {
			if r.phase == running {
				waits = append(waits, r.name)
			}
		}
		if len(waits) == 0 {
			return "Draining."
		}
		return "Draining: waiting for " + strings.Join(waits, ", ") + ". Ctrl-C again stops at once."
	case s.trouble != nil:
		return "The node does not answer: " + tui.StripControls(s.trouble.Error())
	}
	return ""
}
