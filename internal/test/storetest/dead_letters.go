package storetest

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// readLetters lists the dead runs of a namespace, by record.
func (w *World) readLetters(namespace string, budget int) map[job.RecordID]job.DeadLetter {
	w.T.Helper()
	seen, cursor := map[job.RecordID]job.DeadLetter{}, ""
	for range 1000 {
		page, next, _, err := w.Store.ListDeadLetters(w.T.Context(), namespace, cursor, budget)
		if err != nil {
			w.T.Fatal(err)
		}
		for _, l := range page {
			seen[l.Record] = l
		}
		cursor = next
		if cursor == "" {
			return seen
		}
	}
	w.T.Fatal("the walk does not end")
	return nil
}

// testLettersOfRuns: two runs of a job die at the same time as records of their
// own.
func testLettersOfRuns(w *World) {
	d := Overlapping(w.InShard(0, 1)[0])
	d.Labels = map[string]string{"team": "mail"}
	w.Add(d)
	live := w.Spawn(d, 2)
	edited := *w.Get(d.ID).Definition
	edited.Schedule.Every = time.Hour // a later generation, which is not that of the runs
	w.MustWrite(0, w.Decide(d.Record(), &d, w.Get(d.ID).State, job.Update{New: w.compileDefinition(&edited)}))
	for _, l := range live {
		w.MustWrite(0, w.Family(l.Record, job.FinishAttempt{
			Token: l.Known.State.Token, Outcome: job.OutcomeFailed, Error: "no luck", StartedMS: unixtime.Milli(w.Clock.Load()),
		})...)
	}
	died := w.Clock.Load()
	letters := w.readLetters("ns", 3)
	for slot, l := range live {
		record := d.Record().Letter(slot)
		stored, letter := w.Records(record)[0], letters[record]
		s, was := stored.State, l.Known.State
		if s.Token != was.Token || s.RunID() != was.RunID() || s.Generation != 1 || s.Region != job.RegionDead {
			w.T.Errorf("dead letter %+v of %+v", s, l.Known.State)
		}
		if letter.Run.ID != l.Known.State.RunID() || letter.Run.Error != "no luck" || !letter.Run.DeadLetter ||
			letter.Queue != d.Queue || letter.Labels["team"] != "mail" ||
			letter.ExpireMS != unixtime.Milli(died+d.DeadLetterTTL.Milliseconds()) {
			w.T.Errorf("listed as %+v", letter)
		}
	}
	if len(letters) != 2 {
		w.T.Errorf("listed %+v", letters)
	}
	if s := w.Get(d.ID).State; s.Dead != 2 || s.Children != 0 {
		w.T.Errorf("parent %+v", s)
	}
	w.redriveLetter(d)
}

// redriveLetter tries the first dead letter of a job again.
func (w *World) redriveLetter(d job.Definition) {
	w.T.Helper()
	record, child := d.Record().Letter(0), d.Record().Run(0)
	letter := w.Records(record)[0]
	redrive := w.Family(record, job.Redrive{})
	for range 3 {
		w.MustWrite(0, redrive...)
	}
	run := w.Records(child)[0].State
	if run.RunID() != letter.State.RunID() || run.Region != job.RegionDue ||
		unixtime.Milli(w.recordScore(child, run.Lane)) != run.Due {
		w.T.Errorf("run %+v of letter %+v", run, letter.State)
	}
	if left := w.readLetters("ns", 5000); len(left) != 1 {
		w.T.Errorf("letters that are left: %+v", left)
	}
	for _, field := range w.Client.HKeys(w.T.Context(), w.Key(0, "hist")).Val() {
		if job.RecordID(field) == record+".0" {
			w.T.Error("the letter's history is left")
		}
	}
	if l := w.Lease(0, 1); len(l) != 1 || l[0].Record != child {
		w.T.Fatalf("leased %v", leasedRecords(l))
	}
	w.MustWrite(0, redrive...) // late, but nothing else has happened
	// The same letter is not redriven by another one's repeat.
	other := w.Family(d.Record().Letter(1), job.Redrive{})
	other[1] = redrive[1]
	if r := w.Apply(0, other...).Results; r[0].Code != job.Conflict || r[1].Code != job.Conflict {
		w.T.Errorf("two letters with one parent's write: %+v", r)
	}
}

func testListLetters(w *World) {
	want := map[job.RecordID]bool{}
	for i, id := range w.InShard(0, 6) {
		d := Definition(id)
		if i%2 == 0 {
			d = Once(id, time.Minute)
		}
		if i == 4 {
			d.HistoryLimit = 0
		}
		d.Retry.MaxAttempts = 1
		w.Add(d)
		w.runTo(id, job.OutcomeFailed)
		record := d.Record()
		if i%2 == 1 {
			record = record.Letter(0)
			w.MustWrite(0, w.Decide(d.Record(), &d, w.Get(id).State, job.Pause{}))
		}
		want[record] = true
	}
	w.Add(Once("alive", time.Hour))
	for _, budget := range []int{1, 5000} {
		for _, namespace := range []string{"ns", ""} {
			got := w.readLetters(namespace, budget)
			for record, l := range got {
				state := w.Records(record)[0].State
				if !want[record] || l.Run.Outcome != job.OutcomeDead || l.Run.Error != "no luck" ||
					l.Run.FinishedMS != state.LastFinished || l.Run.NominalMS == 0 || l.Run.ID == "" ||
					l.Queue != state.Lane.Queue {
					w.T.Errorf("listed %s: %+v", record, l)
				}
			}
			if len(got) != len(want) {
				w.T.Errorf("listed %d dead runs, want %d", len(got), len(want))
			}
		}
	}
	if got := w.readLetters("another", 5000); len(got) != 0 {
		w.T.Errorf("in another namespace: %+v", got)
	}
	w.Advance(25 * time.Hour)
	if n, err := w.Store.Sweep(w.T.Context(), 0, lockValue, []job.Lane{Lane()}, 100); err != nil || n < len(want) {
		w.T.Errorf("swept %d (%v)", n, err)
	}
	if got := w.readLetters("", 5000); len(got) != 0 {
		w.T.Errorf("after their time: %+v", got)
	}
}

// testLetterMoves: the fourth dead letter takes the place of the first, which was
// in another lane.
func testLetterMoves(w *World) {
	id := w.InShard(0, 1)[0]
	d := Definition(id)
	d.Retry.MaxAttempts = 1
	w.Add(d)
	for range job.DeadLettersPerJob {
		w.runTo(id, job.OutcomeFailed)
	}
	edited := *w.Get(id).Definition
	edited.Queue = "bulk"
	w.MustWrite(0, w.Decide(d.Record(), &d, w.Get(id).State, job.Update{New: w.compileDefinition(&edited)}))
	w.Clock.Store(int64(w.Get(id).IndexMS))
	l := w.Store.Lease(w.T.Context(), []job.LeaseRequest{LeaseRequest(0, 1, "", edited.Lane())})[0].Leased[0]
	settle := w.Settle(l, job.OutcomeFailed)
	w.MustWrite(0, settle)
	w.MustWrite(0, settle)
	letter := w.Records(d.Record().Letter(0))[0]
	if letter.State.Token != l.Known.State.Token || letter.State.Lane != edited.Lane() {
		w.T.Errorf("letter %+v", letter.State)
	}
	old := w.Client.ZRange(w.T.Context(), w.Key(0, "l:")+Lane().String(), 0, -1).Val()
	slices.Sort(old)
	if want := []string{string(d.Record() + "#d1"), string(d.Record() + "#d2")}; !slices.Equal(old, want) {
		w.T.Errorf("the lane before has %v, want %v", old, want)
	}
}

// testDeleteWithRuns: a deleted job stays until the last of its runs has ended.
func testDeleteWithRuns(w *World) {
	d := Overlapping(w.InShard(0, 1)[0])
	w.Add(d)
	live := w.Spawn(d, 3)
	fail := func(l job.Leased) []job.Write {
		return w.Family(l.Record, w.finish(l, job.OutcomeFailed))
	}
	w.MustWrite(0, fail(live[0])...) // leaves a dead letter
	remove := w.Decide(d.Record(), &d, w.Get(d.ID).State, job.Delete{})
	w.MustWrite(0, remove)
	w.MustWrite(0, remove)
	taken := Create(w.T.Context(), w.Store, 0, []job.Record{w.Record(d)})
	if taken.Err != nil || taken.Results[0].Code != job.Tombstone {
		w.T.Errorf("created while runs are live: %+v", taken)
	}
	w.MustWrite(0, fail(live[1])...)
	if s := w.Get(d.ID); s == nil || !s.State.Deleting || s.State.Children != 1<<2 {
		w.T.Errorf("with one run left: %+v", s)
	}
	w.MustWrite(0, fail(live[2])...)
	for _, name := range []string{"st", "def", "hist", "lanes", "l:" + Lane().String()} {
		if n := w.Client.Exists(w.T.Context(), w.Key(0, name)).Val(); n != 0 {
			w.T.Errorf("%s is left", name)
		}
	}
	w.Advance(time.Second)
	w.Add(d)
}
