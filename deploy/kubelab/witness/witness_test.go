package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
)

// attempt is the request that the handler http makes of a lease.
func attempt(t *testing.T, url, job, token string, due time.Time) *http.Request {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := due.UTC().Format(time.RFC3339Nano)
	for name, value := range map[string]string{
		"Fermata-Run": "namespaces/default/jobs/" + job + "/runs/1-5", "Fermata-Attempt": "1", "Fermata-Token": token,
		"Fermata-Nominal-Time": at, "Fermata-Due-Time": at,
	} {
		q.Header.Set(name, value)
	}
	return q
}

func TestRecorderTellsWhatHappened(t *testing.T) {
	w := newWitness(nil, "", time.Second)
	s := httptest.NewServer(w.evidence())
	defer s.Close()
	due := time.UnixMilli(1767225600123)
	for query, status := range map[string]int{"": 200, "?fail": 500} {
		response, err := s.Client().Do(attempt(t, s.URL+"/run"+query, "j"+query, "7", due))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("%q: %s", query, response.Status)
		}
	}
	outcomes := map[string]string{}
	for _, e := range w.recorder.seen() {
		if e.Kind == historycheck.End {
			outcomes[e.Job] = e.Outcome
		}
		if e.Token != 7 || e.NominalMS != due.UnixMilli() || e.DueMS != due.UnixMilli() || e.Worker != "127.0.0.1" {
			t.Errorf("recorded %+v", e)
		}
	}
	if outcomes["j"] != historycheck.OK || outcomes["j?fail"] != historycheck.Failed {
		t.Errorf("outcomes %v", outcomes)
	}
	response, err := s.Client().Post(s.URL+"/run", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusBadRequest || len(w.recorder.seen()) != 4 {
		t.Errorf("a request of nobody: %s, %d events", response.Status, len(w.recorder.seen()))
	}
}

// history has a job of one second that ran at each of these seconds, leased when it was due.
func history(w *witness, begun time.Time, starts ...int) {
	ms := begun.UnixMilli()
	w.load.promises = []historycheck.ExpectedSchedule{{Job: "j", AnchorMS: ms, Every: time.Second, FromMS: ms}}
	for _, second := range starts {
		at := begun.Add(time.Duration(second) * time.Second)
		e := historycheck.Event{
			AtNS: at.UnixNano(), Kind: historycheck.Start, Worker: "w", Job: "j", Run: "j/" + at.Format("05"), Attempt: 1,
			Token: at.UnixMicro(), NominalMS: at.UnixMilli(), DueMS: at.UnixMilli(),
		}
		w.recorder.events = append(w.recorder.events, e)
		e.Kind, e.Outcome, e.AtNS = historycheck.End, historycheck.OK, e.AtNS+1e6
		w.recorder.events = append(w.recorder.events, e)
	}
}

func TestVerdict(t *testing.T) {
	begun := time.Now().Add(-10 * time.Second)
	tests := map[string]struct {
		starts []int
		leased time.Duration // after each start

		err string
	}{
		"all is well":      {starts: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"times are missed": {starts: []int{0, 1, 2, 7, 8, 9}, err: "missed: j"},
		"nothing":          {err: "nothing ran"},
		"too few of them":  {starts: []int{9}, err: "missed: j"},
		"leased too long ago": {
			starts: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, leased: -31 * time.Second, err: "expired: j",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWitness(nil, "", 30*time.Second)
			history(w, begun, test.starts...)
			for i := range w.recorder.events {
				w.recorder.events[i].Token += test.leased.Microseconds()
			}
			said, err := w.verdict(w.history(map[string]bool{"j": true}))
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("said %s, %v; want %q", said, err, test.err)
			}
		})
	}
}

func TestAnActThatTakesTooLongFails(t *testing.T) {
	tests := map[string]struct {
		starts []int // seconds of the last ten
		within string
		calls  []clientCall
		err    string
	}{
		"on time":                    {starts: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, within: "2s"},
		"a wait that is documented":  {starts: []int{0, 1, 2, 3, 4, 5, 9}, within: "4s"},
		"a wait that is not":         {starts: []int{0, 1, 2, 8, 9}, within: "2s", err: "j waited for too long"},
		"a call of a client failed":  {starts: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, within: "2s", calls: []clientCall{{err: http.ErrHandlerTimeout}}, err: "no call was to fail"},
		"a call failed and may":      {starts: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, within: "2s&calls=may-fail", calls: []clientCall{{err: http.ErrHandlerTimeout}}},
		"before it nobody has asked": {starts: []int{0, 5, 6, 7, 8, 9}, within: "2s"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWitness(nil, "", 30*time.Second)
			begun := time.Now().Add(-9500 * time.Millisecond)
			history(w, begun, test.starts...)
			for i := range test.calls {
				test.calls[i].toNS = time.Now().Add(time.Hour).UnixNano()
			}
			w.load.calls = test.calls
			values, err := url.ParseQuery("name=x&within=" + test.within)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.begin(t.Context(), values); err != nil {
				t.Fatal(err)
			}
			w.act.fromNS = begun.Add(5200 * time.Millisecond).UnixNano()
			said, err := w.end(t.Context(), nil)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("said %s, %v; want %q", said, err, test.err)
			}
		})
	}
}

func TestQuestionsOutOfOrderAreRefused(t *testing.T) {
	s := httptest.NewServer(newWitness(nil, "", time.Second).stagehand(t.Context()))
	defer s.Close()
	for _, path := range []string{"/end", "/done", "/judge", "/begin?name=x", "/register?jobs=0"} {
		response, err := s.Client().Post(s.URL+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusConflict {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
}

func TestPulseNotesStalls(t *testing.T) {
	var p stallWatch
	at := time.Now()
	p.note(at, at.Add(stalled))
	p.note(at, at.Add(stalled+time.Millisecond))
	p.note(at, at.Add(2*costly))
	seen := p.seen()
	if len(seen) != 2 || !seen[0].Harmless || seen[1].Harmless {
		t.Errorf("noted %+v", seen)
	}
	if sum := p.since(at.UnixNano()); sum != stalled+time.Millisecond+2*costly {
		t.Errorf("it stood still for %v", sum)
	}
}
