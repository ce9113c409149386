package codec

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// drawAttempts returns nil for no attempts.
func drawAttempts(t *rapid.T) (attempts []job.Attempt) {
	ms := rapid.OneOf(rapid.Int64(), rapid.Int64Range(1_700_000_000_000, 1_900_000_000_000))
	for range rapid.IntRange(0, job.MaxLoggedAttempts).Draw(t, "attempts logged") {
		attempts = append(attempts, job.Attempt{
			Number: rapid.Uint32().Draw(t, "number"), Outcome: job.Outcome(rapid.IntRange(0, int(job.OutcomeCancelled)).Draw(t, "ended as")),
			Source: job.DelaySource(rapid.IntRange(0, int(job.DelayJitter)).Draw(t, "due by")), DueMS: unixtime.Milli(ms.Draw(t, "attempt due")),
			StartedMS: unixtime.Milli(ms.Draw(t, "attempt started")), FinishedMS: unixtime.Milli(ms.Draw(t, "attempt finished")),
			Worker: rapid.SampledFrom([]string{"", "w1", "w2", "\xff"}).Draw(t, "worker of attempt"),
		})
	}
	return attempts
}

// retriedRun has three attempts: one failed, the second was lost, the third succeeded.
func retriedRun() *job.Run {
	const due = 1_800_000_000_000
	return &job.Run{
		ID: "1-1800000000000", NominalMS: due, DueMS: due + 2500, StartedMS: due + 14_520, FinishedMS: due + 14_900, Attempts: 2,
		Outcome: job.OutcomeSucceeded, Worker: "worker-2",
		AttemptLog: []job.Attempt{
			{Number: 1, Outcome: job.OutcomeFailed, DueMS: due, StartedMS: due + 3, FinishedMS: due + 500, Worker: "worker-1"},
			{Number: 2, Outcome: job.OutcomeLost, Source: job.DelayRetry, DueMS: due + 2500, StartedMS: due + 2502, FinishedMS: due + 14_502},
			{Number: 2, Outcome: job.OutcomeSucceeded, Source: job.DelayRetry, DueMS: due + 2500, StartedMS: due + 14_520, FinishedMS: due + 14_900, Worker: "worker-2"},
		},
	}
}

// TestAttemptsTakeFewBytes: an attempt takes up to 12 bytes beside the name of its worker, which is stored once. A run
// that succeeded at its first attempt takes none.
func TestAttemptsTakeFewBytes(t *testing.T) {
	r := retriedRun()
	with, err := EncodeRun(r)
	if err != nil {
		t.Fatal(err)
	}
	attempts, names := len(r.AttemptLog), len("worker-1")+len("worker-2")
	r.AttemptLog = nil
	without, err := EncodeRun(r)
	if err != nil {
		t.Fatal(err)
	}
	const head, perName = 5 + 6, 2 // tags and lengths, and the time of the first attempt
	if extra := len(with) - len(without) - names - 2*perName - head; extra > 12*attempts {
		t.Errorf("%d attempts take %d bytes", attempts, extra)
	}
	var m storagev1.Run
	if err := proto.Unmarshal(without, &m); err != nil || m.AttemptLog != nil {
		t.Errorf("a run of one attempt is stored as %v (%v)", &m, err)
	}
	// The message is used again for the next run of a call.
	var buffer ArgumentBuffer
	for _, log := range [][]job.Attempt{retriedRun().AttemptLog, nil} {
		r.AttemptLog = log
		text, err := buffer.AppendRun(r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeRun(string(text)); err != nil || !reflect.DeepEqual(got, *r) {
			t.Errorf("is   %+v (%v)\nwant %+v", got, err, *r)
		}
	}
}

// TestUnreadableAttemptsAreLeftOut: a run, and a record, must not fail for the sake of the times of earlier attempts.
func TestUnreadableAttemptsAreLeftOut(t *testing.T) {
	logs := map[string]*storagev1.AttemptLog{
		"a number is missing":    {Token: 5, Numbers: []int64{1 << 8, 1, 2, 3}},
		"outcome of a later one": {Token: 5, Numbers: []int64{1<<8 | int64(job.OutcomeCancelled+1), 1, 2, 3, 0}},
		"rule of a later one":    {Token: 5, Numbers: []int64{1<<8 | int64(job.DelayJitter+1)<<4, 1, 2, 3, 0}},
		"no such worker":         {Token: 5, Numbers: []int64{1 << 8, 1, 2, 3, 2}, Workers: [][]byte{[]byte("w")}},
		"a negative worker":      {Token: 5, Numbers: []int64{1 << 8, 1, 2, 3, -1}},
		"empty":                  {},
	}
	for name, log := range logs {
		text, err := proto.Marshal(&storagev1.Run{Id: "1-1", AttemptLog: log})
		if err != nil {
			t.Fatal(err)
		}
		if run, err := DecodeRun(string(text)); err != nil || run.ID != "1-1" || run.AttemptLog != nil {
			t.Errorf("%s: %+v (%v)", name, run, err)
		}
		text, err = proto.Marshal(log)
		if err != nil {
			t.Fatal(err)
		}
		wantReadable(t, name, string(text))
	}
	wantReadable(t, "no message", "\xff")
	many := &storagev1.AttemptLog{}
	for n := range int64(job.MaxLoggedAttempts + 3) {
		many.Numbers = append(many.Numbers, n<<8, 1, 1, 1, 0)
	}
	if got := decodeAttemptLog(many); len(got) != job.MaxLoggedAttempts || got[0].Number != 3 || got[0].FinishedMS != 12 {
		t.Errorf("of many: %+v", got)
	}
}

// wantReadable decodes a state whose log has this text.
func wantReadable(t *testing.T, name, log string) {
	t.Helper()
	s := job.State{Revision: 1, Lane: job.Lane{Namespace: "ns", Queue: "q"}, Generation: 1, Nominal: 5, Due: 5}
	text, err := EncodingFull.EncodeState(&s)
	if err != nil {
		t.Fatal(err)
	}
	w := tailWriter{buf: []byte(text)}
	w.writeString('#', log)
	if got, err := DecodeState("ns/job", string(w.buf)); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%s: %+v (%v)", name, got, err)
	}
}

// TestOlderVersionsKeepTheLog: to them it is a field of a later version.
func TestOlderVersionsKeepTheLog(t *testing.T) {
	s := job.State{Revision: 1, Lane: job.Lane{Namespace: "ns", Queue: "q"}, Generation: 1, Nominal: 5, Due: 5, Attempt: 1,
		SettledToken: 7000, Token: 7000, AttemptLog: &job.AttemptLog{Token: 7000, Attempts: retriedRun().AttemptLog}}
	text, err := EncodingFull.EncodeState(&s)
	if err != nil {
		t.Fatal(err)
	}
	r := tailReader{rest: text[stateHeaderLen:]}
	for len(r.rest) > 0 {
		before := r.rest
		f, err := r.nextField()
		if err != nil {
			t.Fatal(err)
		}
		if f.letter != '#' {
			continue
		}
		older := s
		older.AttemptLog, older.Unknown, older.Nominal = nil, before[:len(before)-len(r.rest)], 60_000
		text, err = EncodingFull.EncodeState(&older)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeState("ns/job", text); err != nil || !reflect.DeepEqual(got.AttemptLog, s.AttemptLog) {
			t.Errorf("after an older version: %+v (%v)", got.AttemptLog, err)
		}
		return
	}
	t.Error("the state has no log")
}
