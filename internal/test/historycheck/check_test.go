package historycheck

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

// second is where every test's time begins; a whole second makes times readable.
const second = int64(1_800_000_000)

func atMS(ms int64) int64 { return (second*1000 + ms) * 1e6 }

// script builds a history of one job that runs every second from 0 to 10 s.
type script struct{ h History }

func newScript() *script {
	return &script{History{
		ExpectedSchedules: []ExpectedSchedule{{Job: "a", AnchorMS: second * 1000, Every: time.Second}},
		Bounds: Bounds{Lag: 300 * time.Millisecond, Settle: 100 * time.Millisecond,
			LeaseTTL: 3 * time.Second, Longest: 5 * time.Second},
		EndNS: atMS(10_000) - 1,
	}}
}

// call describes one handler call in ms from the beginning. Zero fields get what a calm run has.
type call struct {
	nominal, due  int64
	start, length int64 // ms; a negative length never ends
	told          int64
	token         int64
	attempt       int
	worker        string
	outcome       string
	ahead         int64 // ns that it starts before start
}

func (s *script) addCall(c call) *script {
	if c.due == 0 {
		c.due = c.nominal
	}
	if c.start == 0 {
		c.start = c.due + 20
	}
	if c.length == 0 {
		c.length = 50
	}
	if c.token == 0 {
		c.token = c.start
	}
	if c.worker == "" {
		c.worker = "w1"
	}
	if c.attempt == 0 {
		c.attempt = 1
	}
	if c.outcome == "" {
		c.outcome = OK
	}
	e := Event{
		AtNS: atMS(c.start) - c.ahead, Kind: Start, Worker: c.worker, Job: "a", Run: fmt.Sprintf("a/%d", c.nominal),
		Attempt: c.attempt, Token: c.token, NominalMS: second*1000 + c.nominal, DueMS: second*1000 + c.due,
	}
	s.h.Events = append(s.h.Events, e)
	if c.told != 0 {
		e.Kind, e.AtNS = ContextCancelled, atMS(c.told)
		s.h.Events = append(s.h.Events, e)
	}
	if c.length > 0 {
		e.Kind, e.AtNS, e.Outcome = End, atMS(c.start+c.length), c.outcome
		s.h.Events = append(s.h.Events, e)
	}
	return s
}

// addCalm adds the runs of these nominal times (both included) as they should be.
func (s *script) addCalm(from, to int64) *script {
	for ms := from; ms <= to; ms += 1000 {
		s.addCall(call{nominal: ms})
	}
	return s
}

// givenLate has the times of the job given so many ns from the millisecond that they are rounded to.
func (s *script) givenLate(ns int64) *script {
	s.h.ExpectedSchedules[0].GivenNS = atMS(0) + ns
	return s
}

func (s *script) addFault(f Fault) *script {
	s.h.Faults = append(s.h.Faults, f)
	return s
}

// gaveUp has workers die for a while, and a run be given up.
func (s *script) gaveUp() *script {
	s.h.GivenUp, s.h.Bounds.LeaseTTL = map[string]bool{"a": true}, 100*time.Millisecond
	return s.addFault(Fault{Name: "deaths", FromNS: atMS(3900), ToNS: atMS(4300)})
}

func stoppedWorkers(from, to int64, workers ...string) Fault {
	return Fault{Name: "stopped", FromNS: atMS(from), ToNS: atMS(to), Hold: time.Second, Workers: workers}
}

func TestFindings(t *testing.T) {
	tests := []struct {
		name    string
		history *script
		want    []Kind
	}{
		{"calm", newScript().addCalm(0, 9000), nil},
		{"a nominal time without a run", newScript().addCalm(0, 3000).addCalm(5000, 9000), []Kind{Missed}},
		{"the last one", newScript().addCalm(0, 8000), []Kind{Missed}},
		{"never at all", newScript(), []Kind{Lost}},
		{"late", newScript().addCalm(0, 3000).addCall(call{nominal: 4000, start: 4400}).addCalm(5000, 9000), []Kind{Late}},
		{"late, and the next time passed meanwhile",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, start: 5100}).addCalm(6000, 9000), []Kind{Late}},
		{"a long run skips the times it covers",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, length: 2500}).addCalm(7000, 9000), nil},
		{"a long run does not excuse what comes after it",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, length: 2500}).addCalm(8000, 9000), []Kind{Missed}},
		{"a take-over holds work back, within its bound",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, start: 6100}).addCalm(7000, 9000).addFault(stoppedWorkers(3900, 5500)), nil},
		{"a take-over takes too long",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, start: 8000}).addCalm(9000, 9000).addFault(stoppedWorkers(3900, 5500)), []Kind{Late}},
		{"backs off after a run whose workers died", newScript().addCalm(0, 3000).
			addCall(call{nominal: 4000, length: -1}).addCall(call{nominal: 4000, start: 4200, length: -1, worker: "w2"}).
			addCall(call{nominal: 6000, due: 6700}).addCalm(7000, 9000).gaveUp(), nil},
		{"starts late after such a backoff", newScript().addCalm(0, 3000).
			addCall(call{nominal: 4000, length: -1}).addCall(call{nominal: 4000, start: 4200, length: -1, worker: "w2"}).
			addCall(call{nominal: 6000, due: 6100, start: 6950}).addCalm(7000, 9000).gaveUp(), []Kind{Late}},
		{"backs off though the run ended", newScript().addCalm(0, 3000).
			addCall(call{nominal: 4000, length: -1}).addCall(call{nominal: 4000, start: 4200, worker: "w2"}).
			addCall(call{nominal: 6000, due: 6700}).addCalm(7000, 9000).gaveUp(), []Kind{Late, Missed}},
		{"nothing after a take-over",
			newScript().addCalm(0, 3000).addFault(stoppedWorkers(3900, 5500)),
			[]Kind{Missed, Missed, Missed, Missed, Missed, Missed}},
		{"one start labelled as two runs",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, start: 5030}).addCall(call{nominal: 5000, start: 5090}).addCalm(6000, 9000),
			[]Kind{Late}},
		{"starts before it is due", newScript().addCalm(0, 3000).addCall(call{nominal: 4000, start: 3990}).addCalm(5000, 9000),
			[]Kind{Early, Missed}},
		{"starts a nanosecond before it is due", newScript().addCalm(0, 3000).addCall(call{nominal: 4000, start: 4000, ahead: 1}).addCalm(5000, 9000),
			[]Kind{Early, Missed}},
		{"starts the nanosecond it is due", newScript().addCalm(0, 3000).addCall(call{nominal: 4000, start: 4000}).addCalm(5000, 9000), nil},
		{"times given between two milliseconds", newScript().givenLate(-999_999).addCalm(0, 9000), nil},
		{"starts as soon as its time was given, which is before it is due", newScript().givenLate(-400_000).addCalm(0, 3000).
			addCall(call{nominal: 4000, start: 4000, ahead: 400_000}).addCalm(5000, 9000), []Kind{Early}},
		{"starts a nanosecond before the time given", newScript().givenLate(-400_000).addCalm(0, 3000).
			addCall(call{nominal: 4000, start: 4000, ahead: 400_001}).addCalm(5000, 9000), []Kind{Early, Missed}},
		{"nominal times cut off to the millisecond before the time given", newScript().givenLate(-400_000).addCalm(0, 3000).
			addCall(call{nominal: 3999, due: 3999, start: 4020}).addCalm(5000, 9000), []Kind{Early}},
		{"due before its nominal time", newScript().addCalm(0, 3000).addCall(call{nominal: 4000, due: 3990, start: 4001}).addCalm(5000, 9000),
			[]Kind{Early}},

		{"two executions of one run at once",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, length: 400}).
				addCall(call{nominal: 4000, start: 4200, worker: "w2"}).addCalm(5000, 9000), []Kind{Overlap, Repeat}},
		{"two runs of one job at once",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, length: 1500}).addCall(call{nominal: 5000, worker: "w2"}).addCalm(6000, 9000),
			[]Kind{Overlap}},
		{"repeated while the lease of a cut off worker is still live",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, length: -1}).
				addCall(call{nominal: 4000, start: 5000, worker: "w2"}).addCalm(6000, 9000).addFault(stoppedWorkers(4100, 5500, "w1")), []Kind{Overlap}},
		{"repeated after the lease of a cut off worker has lapsed",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, length: -1}).
				addCall(call{nominal: 4000, start: 7200, worker: "w2"}).addCalm(8000, 9000).addFault(stoppedWorkers(4100, 6500, "w1")), nil},
		{"the fault concerned another worker",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, length: 3300}).
				addCall(call{nominal: 4000, start: 7200, worker: "w2"}).addCalm(8000, 9000).addFault(stoppedWorkers(4100, 6500, "w3")),
			[]Kind{Overlap, Repeat}},
		{"a handler that was told to stop does not overlap",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, length: 2000, told: 4900}).
				addCall(call{nominal: 4000, start: 5000, worker: "w2"}).addCalm(7000, 9000).addFault(stoppedWorkers(3900, 6500, "w1")), nil},

		{"repeated without a reason",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000}).addCall(call{nominal: 4000, start: 4200, worker: "w2"}).addCalm(5000, 9000),
			[]Kind{Repeat}},
		{"repeated because it failed",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, outcome: Failed}).addCall(call{nominal: 4000, start: 4200, attempt: 2}).addCalm(5000, 9000),
			nil},
		{"a harmless fault explains no repetition",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000}).addCall(call{nominal: 4000, start: 4200, worker: "w2"}).addCalm(5000, 9000).
				addFault(Fault{FromNS: atMS(3900), ToNS: atMS(4500), Harmless: true}), []Kind{Repeat}},
		{"an attempt that was not counted",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, outcome: Failed}).addCall(call{nominal: 4000, start: 4200}).addCalm(5000, 9000),
			[]Kind{Attempt}},
		{"a dead run that was redriven", redrivenOnce(newScript().addCalm(0, 3000).addCall(call{nominal: 4000, outcome: Failed}).
			addCall(call{nominal: 4000, start: 4200}).addCalm(5000, 9000)), nil},
		{"a dead run that was redriven once began again twice", redrivenOnce(newScript().addCalm(0, 3000).
			addCall(call{nominal: 4000, outcome: Failed}).addCall(call{nominal: 4000, start: 4200, outcome: Failed}).
			addCall(call{nominal: 4000, start: 4400}).addCalm(5000, 9000)), []Kind{Attempt}},
		{"a lost worker used up an attempt",
			newScript().addCalm(0, 3000).addCall(call{nominal: 4000, length: -1}).
				addCall(call{nominal: 4000, start: 7200, worker: "w2", attempt: 2}).addCalm(8000, 9000).addFault(stoppedWorkers(4100, 6500, "w1")),
			[]Kind{Attempt}},
		{"never ended", newScript().addCalm(0, 3000).addCall(call{nominal: 4000, length: -1}).addCalm(5000, 9000),
			[]Kind{Overlap, Overlap, Overlap, Overlap, Overlap, Unfinished}},

		{"a token went back",
			newScript().addCalm(0, 4000).addCall(call{nominal: 5000, token: 3000 - 1}).addCalm(6000, 9000), []Kind{TokenOrder}},
		{"an edit before the window has ended that a fault made wider", func() *script {
			s := newScript().addCalm(0, 4000).addFault(stoppedWorkers(4900, 6000))
			s.h.ExpectedSchedules[0].UntilMS = second*1000 + 5500
			return s
		}(), nil},
		{"edits before any run, all of whose windows a fault made wider", func() *script {
			s := newScript().addFault(stoppedWorkers(0, 6000))
			s.h.ExpectedSchedules[0].UntilMS = second*1000 + 5500
			return s
		}(), nil},
		{"an edit before any run, after a window has ended", func() *script {
			s := newScript().addFault(stoppedWorkers(2000, 6000))
			s.h.ExpectedSchedules[0].UntilMS = second*1000 + 5500
			return s
		}(), []Kind{Lost}},
		{"an edit after the window has ended", func() *script {
			s := newScript().addCalm(0, 3000)
			s.h.ExpectedSchedules[0].UntilMS = second*1000 + 4500
			return s
		}(), []Kind{Missed}},
		{"an edit while a fault holds a run back", func() *script {
			s := newScript().addCalm(4000, 9000).addFault(stoppedWorkers(500, 2500))
			s.h.ExpectedSchedules[0].Edited, s.h.ExpectedSchedules[0].FromMS = true, second*1000+1000
			return s
		}(), nil},
		{"an edit in calm times", func() *script {
			s := newScript().addCalm(4000, 9000)
			s.h.ExpectedSchedules[0].Edited, s.h.ExpectedSchedules[0].FromMS = true, second*1000+1000
			return s
		}(), []Kind{Missed, Missed, Missed}},
		{"a fault held a lease back until another had begun",
			newScript().addCalm(0, 4000).addCall(call{nominal: 5000, start: 5600, length: 1000}).
				addCall(call{nominal: 5000, start: 5800, length: 10, token: 5001, worker: "w2", outcome: Cancelled}).
				addCalm(7000, 9000).addFault(stoppedWorkers(4900, 5700, "w2")).addFault(stoppedWorkers(4900, 5500)), nil},
		{"a token was given twice",
			newScript().addCalm(0, 4000).addCall(call{nominal: 5000, token: 4020, worker: "w2"}).addCalm(6000, 9000), []Kind{TokenOrder}},
		{"a token started twice on one worker",
			newScript().addCalm(0, 4000).addCall(call{nominal: 5000, token: 4020}).addCalm(6000, 9000), []Kind{TokenOrder}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []Kind
			report := Check(tt.history.h)
			for _, f := range report.Findings {
				got = append(got, f.Kind)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("found %q\nwant %q\n%v", got, tt.want, report.Findings)
			}
		})
	}
}

// redrivenOnce says that the dead run of the job was redriven.
func redrivenOnce(s *script) *script {
	s.h.Redriven = []string{"a"}
	return s
}

func TestUnendedRunIsFound(t *testing.T) {
	s := newScript().addCalm(0, 3000).addCall(call{nominal: 4000, length: -1}).addFault(stoppedWorkers(4100, 4200, "w1"))
	s.h.EndNS = atMS(60_000)
	s.h.ExpectedSchedules[0].UntilMS = second*1000 + 5000
	if got := Check(s.h).Findings; len(got) != 1 || got[0].Kind != Unfinished {
		t.Errorf("found %v, want one unfinished", got)
	}
}

// TestLastAllowedStartHasLongerBound: a run that has lost two workers has longer to start again,
// but not for ever.
func TestLastAllowedStartHasLongerBound(t *testing.T) {
	for _, tt := range []struct {
		losses int
		end    time.Duration // after the last one
		want   int
	}{{1, 10 * time.Second, 1}, {2, 10 * time.Second, 0}, {2, 20 * time.Second, 1}} {
		s := newScript().addCalm(0, 3000)
		last := int64(4000)
		for n := range tt.losses {
			last = int64(4000 + 4000*n)
			s.addCall(call{nominal: 4000, start: last, length: -1, worker: fmt.Sprint("w", n)}).addFault(stoppedWorkers(last+100, last+200, fmt.Sprint("w", n)))
		}
		s.h.EndNS = atMS(last) + int64(tt.end)
		s.h.ExpectedSchedules[0].UntilMS = second*1000 + 5000
		if got := Check(s.h).Findings; len(got) != tt.want {
			t.Errorf("%d losses, %v ago: found %v, want %d", tt.losses, tt.end, got, tt.want)
		}
	}
}

func TestJobsOutsideOfPromises(t *testing.T) {
	s := newScript().addCalm(0, 9000)
	s.h.ExpectedSchedules = append(s.h.ExpectedSchedules, ExpectedSchedule{Job: "gone"})
	s.h.Stored = map[string]bool{"a": true}
	stray := s.h.Events[0]
	stray.Job, stray.Run = "stray", "stray/0"
	s.h.Events = append(s.h.Events, stray, Event{AtNS: stray.AtNS + 1, Kind: End, Worker: "w1", Job: "stray", Run: "stray/0", Token: stray.Token})
	s.h.Events = append(s.h.Events, Event{AtNS: stray.AtNS, Kind: End, Worker: "w9", Job: "a", Run: "a/0", Token: 7})
	var got []string
	for _, f := range Check(s.h).Findings {
		got = append(got, f.Job+" "+string(f.Kind))
	}
	if want := []string{"a stray", "gone lost", "stray stray"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// TestEditMovesPromise: the old times end with the edit, the new ones begin.
func TestEditMovesPromise(t *testing.T) {
	s := newScript().addCalm(0, 4000).addCall(call{nominal: 5500}).addCall(call{nominal: 7500}).addCall(call{nominal: 9500})
	s.h.ExpectedSchedules = []ExpectedSchedule{
		{Job: "a", AnchorMS: second * 1000, Every: time.Second, UntilMS: second*1000 + 5000},
		{Job: "a", AnchorMS: second*1000 - 500, Every: 2 * time.Second, FromMS: second*1000 + 5000},
	}
	r := Check(s.h)
	if len(r.Findings) != 0 || r.Targets != 8 {
		t.Errorf("%d targets, found %v; want 8 and none", r.Targets, r.Findings)
	}
}

// TestLabelsDoNotHideMissedRuns: runs that are labelled well but started
// elsewhere cannot cover windows without a start.
func TestLabelsDoNotHideMissedRuns(t *testing.T) {
	const s = int64(time.Second)
	windows := []window{{0, 10 * s, 0}, {5 * s, 30 * s, 5 * s}, {6 * s, 9 * s, 6 * s}, {40 * s, 50 * s, 40*s - 5}}
	for _, tt := range []struct {
		starts []int64
		want   []window
	}{
		{[]int64{1 * s, 7 * s, 8 * s, 45 * s}, nil},
		{[]int64{7 * s, 8 * s, 9 * s, 41 * s}, nil},
		{[]int64{7 * s, 8 * s, 9 * s, 40*s - 5}, nil},
		{[]int64{7 * s, 8 * s, 9 * s, 40*s - 6}, windows[3:]},
		{[]int64{7 * s, 7 * s, 31 * s, 41 * s}, windows[1:2]},
		{[]int64{20 * s}, []window{windows[2], windows[0], windows[3]}},
		{nil, windows},
	} {
		var runs []coverage
		for _, s := range tt.starts {
			runs = append(runs, coverage{start: s})
		}
		got := unmatchedWindows(windows, runs, 0)
		same := len(got) == len(tt.want)
		for _, w := range tt.want {
			same = same && slices.Contains(got, w)
		}
		if !same {
			t.Errorf("starts %v: left %v, want %v", tt.starts, got, tt.want)
		}
	}
}

// TestGrace: a start within the grace is not late, one after it is; a run may yet come
// as long as the grace lasts, and is missed after it.
func TestGrace(t *testing.T) {
	for _, tt := range []struct {
		name    string
		history *script
		want    []Kind
	}{
		{"within", newScript().addCalm(0, 3000).addCall(call{nominal: 4000, start: 4900}).addCalm(5000, 9000), nil},
		{"after", newScript().addCalm(0, 3000).addCall(call{nominal: 4000, start: 4910}).addCalm(5000, 9000), []Kind{Late}},
		{"may yet come", newScript().addCalm(0, 8000), nil},
		{"does not come", newScript().addCalm(0, 7000).addCall(call{nominal: 9000}), []Kind{Missed}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.history.h.Bounds.Grace = 600 * time.Millisecond
			if tt.name == "may yet come" {
				tt.history.h.EndNS = atMS(9500)
			}
			r := Check(tt.history.h)
			var got []Kind
			for _, f := range r.Findings {
				got = append(got, f.Kind)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("found %v, want %v", r.Findings, tt.want)
			}
		})
	}
}

func TestReportCounts(t *testing.T) {
	r := Check(newScript().addCalm(0, 3000).addCall(call{nominal: 4000, length: 2500}).addCalm(7000, 8000).
		addCall(call{nominal: 9000, outcome: Failed}).addCall(call{nominal: 9000, start: 9500, attempt: 2}).h)
	if r.Executions != 9 || r.Targets != 8 || r.Excused != 2 || r.Repeats != 1 || len(r.Lags) != 8 || r.Lags[0].Lag != 20*time.Millisecond {
		t.Errorf("%+v", r)
	}
}

func TestParseEvents(t *testing.T) {
	line, err := json.Marshal(Event{AtNS: 1, Kind: Start, Job: "a"})
	if err != nil {
		t.Fatal(err)
	}
	events, err := ParseEvents([]byte(string(line) + "\n" + string(line) + "\n" + string(line[:9])))
	if err != nil || len(events) != 2 || events[1].Job != "a" {
		t.Errorf("%v, %v", events, err)
	}
	if _, err := ParseEvents([]byte("{\n")); err == nil {
		t.Error("half a line in the middle passed")
	}
}

// TestStored: what was acknowledged has to be there in the end, or to have been
// deleted; what was not may be there, run, or neither.
func TestStored(t *testing.T) {
	h := newScript().addCalm(0, 9000).h
	h.ExpectedSchedules = append(h.ExpectedSchedules, ExpectedSchedule{Job: "unsure", Unsure: true}, ExpectedSchedule{Job: "deleted"})
	h.NoRunPeriods = []NoRunPeriod{{Job: "deleted", FromNS: atMS(1000), Deleted: true}}
	for _, test := range []struct {
		name   string
		stored []string
		want   []Kind
	}{
		{"all that was acknowledged", []string{"a"}, nil},
		{"and what was not", []string{"a", "unsure"}, nil},
		{"not what was acknowledged", []string{"unsure"}, []Kind{Lost}},
	} {
		h.Stored = map[string]bool{}
		for _, job := range test.stored {
			h.Stored[job] = true
		}
		var got []Kind
		for _, f := range Check(h).Findings {
			got = append(got, f.Kind)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
