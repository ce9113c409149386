package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// runIn leases the job that is due next in a lane, and settles its run.
func (w *World) runIn(lane job.Lane, outcomes ...job.Outcome) {
	w.T.Helper()
	for _, outcome := range outcomes {
		w.Advance(time.Hour)
		leased := w.Store.Lease(w.T.Context(), []job.LeaseRequest{LeaseRequest(0, 1, "", lane)})[0].Leased
		if len(leased) != 1 {
			w.T.Fatalf("leased %v from %s", leasedRecords(leased), lane)
		}
		w.MustWrite(0, w.Settle(leased[0], outcome))
	}
}

// testSweepLeavesNothing: whatever a finished job has had, nothing of it remains.
func testSweepLeavesNothing(w *World) {
	ok, failed := job.OutcomeSucceeded, job.OutcomeFailed
	kinds := []struct {
		adjust   func(*job.Definition)
		outcomes []job.Outcome
		edits    bool
	}{
		{func(*job.Definition) {}, []job.Outcome{ok}, false},
		{func(d *job.Definition) { d.Queue = "default" }, []job.Outcome{ok}, false},
		{func(d *job.Definition) { d.Queue, d.Priority = "default", 0 }, []job.Outcome{ok}, false},
		{func(d *job.Definition) { d.Priority = 9 }, []job.Outcome{ok}, false},
		{func(d *job.Definition) { d.Queue = "mail.bulk" }, []job.Outcome{failed, ok}, false},
		{func(d *job.Definition) { d.Queue, d.HistoryLimit = "forgets", 0 }, []job.Outcome{ok}, false},
		{func(d *job.Definition) { d.Queue = "edited" }, []job.Outcome{ok}, true},
		{func(d *job.Definition) { d.Queue = "dies" }, []job.Outcome{failed, failed}, false},
		{func(d *job.Definition) { d.Queue, d.MaxLag = "objective", time.Second }, []job.Outcome{ok}, false},
		{func(d *job.Definition) {
			d.Queue, d.HistoryLimit = "often", 20
			d.Schedule = Definition("").Schedule
			d.Schedule.MaxRuns = 12
		}, slices.Repeat([]job.Outcome{ok}, 12), false},
		{func(d *job.Definition) {
			d.Queue, d.Retry.MaxAttempts = "letters", 1
			d.Schedule = Definition("").Schedule
			d.Schedule.MaxRuns = 3
		}, []job.Outcome{failed, ok, failed}, false},
	}
	lanes := make([]job.Lane, len(kinds))
	for i, id := range w.InShard(0, len(kinds)) {
		d := Once(id, 0)
		kinds[i].adjust(&d)
		w.Add(d)
		if kinds[i].edits {
			w.MustWrite(0, w.editJob(id, func(d *job.Definition) { d.Handler = "other" }))
		}
		lanes[i] = d.Lane()
		w.runIn(lanes[i], kinds[i].outcomes...)
		if state := w.Get(id).State; state.Region < job.RegionDead {
			w.T.Fatalf("%s goes on: %+v", id, state)
		}
	}
	w.Advance(1000 * time.Hour)
	ctx, swept := w.T.Context(), 0
	for range len(kinds) {
		n, err := w.Store.Sweep(ctx, 0, lockValue, lanes, 3)
		if err != nil || n > 3 {
			w.T.Fatalf("%d were deleted (%v)", n, err)
		}
		swept += n
	}
	if letters := 2; swept != len(kinds)+letters && swept != len(kinds) { // the job may take its letters with it
		w.T.Errorf("%d were deleted of %d", swept, len(kinds))
	}
	for _, name := range []string{"st", "def", "hist", "revisions", "lanes"} {
		if n := w.Client.Exists(ctx, w.Key(0, name)).Val(); n != 0 {
			w.T.Errorf("something is left in %s: %v", name, w.Client.HGetAll(ctx, w.Key(0, name)).Val())
		}
	}
	for _, l := range lanes {
		if left := w.readScores(w.Key(0, "l:") + l.String()); len(left) != 0 {
			w.T.Errorf("lane %s has %v", l, left)
		}
	}
}

// testSweepReadsStates: a record is deleted only if its state can be read and agrees with its entry.
func testSweepReadsStates(w *World) {
	w.Damaged()
	ctx := w.T.Context()
	const kept, gone, moved = "kept", "gone", "moved"
	changes := map[string]struct {
		change func(state string) string
		want   string
	}{
		"as it is":              {func(s string) string { return s }, gone},
		"field of a later node": {func(s string) string { return s + "!5" }, gone},
		"text of a later node":  {func(s string) string { return s + "!3:o9r" }, gone},
		"unknown outcome":       {func(s string) string { return strings.Replace(s, "o1", "o9", 1) }, kept},
		"no number":             {func(s string) string { return s + "!" }, kept},
		"cut off":               {func(s string) string { return s[:36] + strings.Replace(s[36:], "K", "e99:K", 1) }, kept},
		"unknown version":       {func(s string) string { return s[:35] + "7" + s[36:] }, kept},
		"no state":              {func(string) string { return "garbage" }, kept},
		"queue of other lane":   {func(s string) string { return strings.Replace(s, "q4:mail", "q9:mail.bulk", 1) }, moved},
		"priority of other":     {func(s string) string { return strings.Replace(s, "q4:mail", "q4:mailp9", 1) }, moved},
		"default lane":          {func(s string) string { return strings.Replace(s, "q4:mail", "", 1) }, moved},
		"region of due runs":    {func(s string) string { return s[:16] + "0" + s[17:] }, moved},
		"region of dead runs":   {func(s string) string { return s[:16] + "3" + s[17:] }, gone},
	}
	ids := w.InShard(0, len(changes))
	want, names := map[string]string{}, map[string]string{}
	for name, c := range changes {
		id := ids[len(want)]
		w.Add(Once(id, 0))
		w.runTo(id, job.OutcomeSucceeded)
		before := w.Client.HGet(ctx, w.Key(0, "st"), "ns/"+id).Val()
		text := c.change(before)
		if text == before && name != "as it is" {
			w.T.Fatalf("%s: %q was not changed", name, before)
		}
		w.Client.HSet(ctx, w.Key(0, "st"), "ns/"+id, text)
		want["ns/"+id], names["ns/"+id] = c.want, name
	}
	w.Advance(1000 * time.Hour)
	for range 2 {
		if _, err := w.Store.Sweep(ctx, 0, lockValue, []job.Lane{Lane()}, 200); err != nil {
			w.T.Fatal(err)
		}
	}
	scores := w.readScores(w.Key(0, "l:") + Lane().String())
	for id, want := range want {
		stored, score := w.Client.HExists(ctx, w.Key(0, "st"), id).Val(), scores[id]
		got := moved
		switch {
		case !stored && score == 0:
			got = gone
		case stored && score == job.Score(job.RegionDead, job.NeverMS):
			got = kept
		case score >= job.Score(job.RegionDead, 0):
			got = "left"
		}
		if got != want {
			w.T.Errorf("%s: %s with score %d, want it %s", names[id], got, score, want)
		}
	}
}

// testSweepInTwoLanes: a lane whose name begins like that of another one has its own records.
func testSweepInTwoLanes(w *World) {
	ids := w.InShard(0, 2)
	for i, id := range ids {
		d := Once(id, 0)
		d.Queue = strings.Repeat("q", i+1)
		w.Add(d)
		w.runIn(d.Lane(), job.OutcomeSucceeded)
	}
	w.Advance(time.Hour)
	first := Once(ids[0], 0)
	first.Queue = "q"
	if n, err := w.Store.Sweep(w.T.Context(), 0, lockValue, []job.Lane{first.Lane()}, 10); n != 1 || err != nil {
		w.T.Errorf("%d were deleted (%v)", n, err)
	}
	if w.Get(ids[0]) != nil || w.Get(ids[1]) == nil {
		w.T.Error("the record of another lane was deleted")
	}
}
