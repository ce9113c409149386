package codec

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// lossOf is a loss; without a token there is none.
func lossOf(token uint64, losses, unacked uint32) job.Loss {
	if token == 0 {
		return job.Loss{}
	}
	return job.Loss{Token: token, Losses: losses, Unacked: unacked}
}

// drawState draws states with every field set somewhere in its range.
func drawState(t *rapid.T) job.State {
	text := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.SampledFrom([]string{"0:", "q9:", "\x00\xff", "1", "-1", ":"}))
	ms := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64(), rapid.Int64Range(1_700_000_000_000, 1_900_000_000_000))
	u32 := rapid.OneOf(rapid.Just(uint32(0)), rapid.Uint32())
	u64 := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64())
	queue := rapid.OneOf(rapid.Just(defaults.Queue), text)
	recent := rapid.SliceOfN(text, 0, job.MaxRecent).Draw(t, "recent")
	if len(recent) == 0 {
		recent = nil
	}
	var backfills []job.Backfill
	for range rapid.IntRange(0, job.MaxBackfills).Draw(t, "backfills") {
		backfills = append(backfills, job.Backfill{
			ID: text.Draw(t, "backfill"), NextMS: unixtime.Milli(ms.Draw(t, "next")), ToMS: unixtime.Milli(ms.Draw(t, "to")),
			Concurrency: rapid.Uint8().Draw(t, "concurrency"), Slots: u64.Draw(t, "slots"),
		})
	}
	var callers []job.Caller
	for range rapid.IntRange(0, 2).Draw(t, "callers") {
		callers = append(callers, job.Caller{RequestID: rapid.StringMatching(`[a-z0-9._:~-]{1,9}`).Draw(t, "caller"), Trace: drawTrace(t)})
	}
	var exempt []string
	for range rapid.IntRange(0, maxExemptRuns).Draw(t, "exempt") {
		exempt = append(exempt, text.Draw(t, "run"))
	}
	var bulkPause job.BulkPause
	if rapid.Bool().Draw(t, "bulk pause") {
		bulkPause = job.BulkPause{ID: rapid.StringMatching(`[a-z0-9._:~-]{1,9}`).Draw(t, "pause"), AtMS: unixtime.Milli(ms.Draw(t, "bulk paused"))}
	}
	var rename *job.RenameMark
	if rapid.Bool().Draw(t, "rename") {
		rename = &job.RenameMark{ID: rapid.StringMatching(`[A-Z0-9]{1,26}`).Draw(t, "rename id"),
			Other: rapid.StringMatching(`[a-z0-9._:~-]{1,9}`).Draw(t, "other name"), Arriving: rapid.Bool().Draw(t, "arriving")}
	}
	mode := func(name string) job.ManualMode {
		return job.ManualMode(rapid.IntRange(0, int(job.ManualResetOnSuccess)).Draw(t, name))
	}
	trigger, own := job.Trigger(rapid.IntRange(0, int(job.TriggerBackfill)).Draw(t, "trigger")), (*job.PayloadInfo)(nil)
	if trigger == job.TriggerManual && rapid.Bool().Draw(t, "own payload") {
		own = &job.PayloadInfo{Size: rapid.IntRange(0, 1<<20).Draw(t, "size"), Sealed: rapid.Bool().Draw(t, "sealed"),
			Digest: [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))}
		own.Digest[0] |= 1
	}
	var log *job.AttemptLog
	if attempts := drawAttempts(t); attempts != nil {
		log = &job.AttemptLog{Token: u64.Draw(t, "logged token"), Attempts: attempts}
	}
	return job.State{
		AttemptLog: log, OwnPayload: own, OwnBytes: u64.Draw(t, "own bytes"),
		Region: job.Region(rapid.IntRange(0, 4).Draw(t, "region")), Token: rapid.Uint64Range(0, MaxToken).Draw(t, "token"),
		Acked: rapid.Bool().Draw(t, "acked"), Revision: u32.Draw(t, "revision"), Epoch: rapid.Uint32Range(0, job.MaxEpoch).Draw(t, "epoch"),
		Lane: job.Lane{
			Namespace: "ns", Queue: queue.Draw(t, "queue"), Priority: uint8(rapid.IntRange(0, job.MaxPriority).Draw(t, "priority")),
		},
		Generation: u32.Draw(t, "generation"), Trigger: trigger,
		ManualID: text.Draw(t, "manual"), Nominal: unixtime.Milli(ms.Draw(t, "nominal")), Due: unixtime.Milli(ms.Draw(t, "due")),
		Source: job.DelaySource(rapid.IntRange(0, int(job.DelayJitter)).Draw(t, "source")), Attempt: u32.Draw(t, "attempt"),
		FirstMS: unixtime.Milli(ms.Draw(t, "first")), Losses: u32.Draw(t, "losses"), Unacked: u32.Draw(t, "unacked"),
		LastLoss: lossOf(rapid.Uint64Range(0, MaxToken).Draw(t, "lost token"), u32.Draw(t, "losses before"), u32.Draw(t, "unacked before")),
		Cancel:   rapid.Bool().Draw(t, "cancel"), Pending: text.Draw(t, "pending"), Paused: rapid.Bool().Draw(t, "paused"),
		PausedMS: unixtime.Milli(ms.Draw(t, "pausedms")), PauseNote: text.Draw(t, "note"), Deleting: rapid.Bool().Draw(t, "deleting"),
		BulkPause:   bulkPause,
		Rename:      rename,
		LastNominal: unixtime.Milli(ms.Draw(t, "lastnominal")), Failures: u32.Draw(t, "failures"),
		LastOutcome: job.Outcome(rapid.IntRange(0, int(job.OutcomeCancelled)).Draw(t, "outcome")),
		LastStarted: unixtime.Milli(ms.Draw(t, "started")), LastFinished: unixtime.Milli(ms.Draw(t, "finished")), LastError: text.Draw(t, "error"),
		KeptRun:      text.Draw(t, "kept run"),
		SettledToken: u64.Draw(t, "settled"), Runs: u64.Draw(t, "runs"), Succeeded: u64.Draw(t, "succeeded"),
		Dead: u64.Draw(t, "dead"), Lost: u64.Draw(t, "lost"), TimedOut: u64.Draw(t, "timedout"), Skipped: u64.Draw(t, "skipped"),
		Recent: recent, Callers: callers, Exempt: exempt, Mode: mode("mode"), PendingMode: mode("pendingmode"),
		Waiting:  uint8(rapid.IntRange(0, job.MaxConcurrentRuns).Draw(t, "waiting")),
		Recovery: rapid.Bool().Draw(t, "recovery"), Paced: rapid.Bool().Draw(t, "paced"),
		Held: job.Hold{
			Reason: job.HoldReason(rapid.IntRange(0, int(job.HeldPayload)).Draw(t, "held")), Key: text.Draw(t, "heldkey"),
			By: text.Draw(t, "heldby"), SinceMS: unixtime.Milli(ms.Draw(t, "heldsince")), DueMS: unixtime.Milli(ms.Draw(t, "helddue")),
		},
		LateMS: ms.Draw(t, "late"), LateNominal: unixtime.Milli(ms.Draw(t, "counted")), WatchedBy: rapid.Uint8().Draw(t, "watched"), Fired: u32.Draw(t, "fired"), BufferedUntil: unixtime.Milli(ms.Draw(t, "buffered")), Backfills: backfills,
		Children: u64.Draw(t, "children"), Started: u64.Draw(t, "begun"),
		Unknown: rapid.SampledFrom([]string{"", "@5", "!3:a:bZ-7", "~0:"}).Draw(t, "unknown"),
		Hint: job.Hint{
			Source: job.HintSource(rapid.IntRange(0, int(job.HintPlanner)).Draw(t, "hint")), AtMS: unixtime.Milli(ms.Draw(t, "hintat")),
			IntervalMS: ms.Draw(t, "hintinterval"), UntilMS: unixtime.Milli(ms.Draw(t, "hintuntil")), Reason: text.Draw(t, "hintreason"),
		},
	}
}

// TestStateRoundTrip fails too when a field is added to State and not to drawState.
func TestStateRoundTrip(t *testing.T) {
	drawn := drawnFieldSet{}
	rapid.Check(t, func(t *rapid.T) {
		f, want := drawEncoding(t), drawState(t)
		drawn.note(want)
		text, err := f.EncodeState(&want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeState("ns/job", text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\nis   %+v (%v)\nwant %+v", text, got, err, want)
		}
	})
	drawn.complete(t, reflect.TypeFor[job.State]())
}

// TestStatesOfPlainJobsStaySmall: what a job does not use takes no space.
func TestStatesOfPlainJobsStaySmall(t *testing.T) {
	s := job.State{Revision: 1, Lane: job.Lane{Namespace: "ns", Queue: "q"}, Generation: 1, Nominal: 1_800_000_000_000, Due: 1_800_000_000_000}
	text, err := EncodingFull.EncodeState(&s)
	if err != nil || text[stateHeaderLen:] != "q1:qg1n1800000000000d0" {
		t.Errorf("%s (%v)", text, err)
	}
	usually := s
	usually.Lane = defaultState.Lane
	ran := usually
	ran.LastNominal, ran.LastStarted, ran.LastFinished = s.Nominal-60_000, s.Nominal-59_995, s.Nominal-59_988
	ran.SettledToken, ran.LastOutcome, ran.Runs, ran.Succeeded = uint64(ran.LastStarted-2)*1000, job.OutcomeSucceeded, 3, 3
	ran.Fired = 3
	failed := ran
	failed.Succeeded, failed.Fired, failed.LastOutcome = 2, 0, job.OutcomeFailed
	early, late := usually, usually
	early.Nominal, early.Due = -1, -1
	late.Nominal, late.Due = unixtime.Milli(job.RegionWidth), unixtime.Milli(job.RegionWidth)
	last := usually
	last.Nominal, last.Due = job.NeverMS, job.NeverMS
	for _, c := range []struct {
		state        job.State
		spare, tight string
	}{
		{s, "q1:qp0n1800000000000", "q1:qp0nYKWVD??"},
		{usually, "n1800000000000", "nYKWVD??"},
		{ran, "n1800000000000L-60000S5E7K-2000r3J3o1", "nYKWVD??L-60000S5E7K-2000r3"},
		{failed, "n1800000000000L-60000S5E7K-2000r3k2o2", "nYKWVD??L-60000S5E7K-2000r3k2J0o2"},
		{last, "n4398046511103", "n~~~~~~~"},
		{early, "n-1", "n-1"},
		{late, "n4398046511104", "n4398046511104"},
		// The header does not go on in digits, nor end the text.
		{job.State{Revision: 1, Lane: defaultState.Lane, Generation: 1}, "g1", "g1"},
		{job.State{Revision: 1, Lane: defaultState.Lane}, "g0", "g0"},
	} {
		for f, want := range map[Encoding]string{EncodingSparse: c.spare, EncodingCompact: c.tight} {
			if text, err := f.EncodeState(&c.state); err != nil || text[stateHeaderLen:] != want {
				t.Errorf("%s (%v), want %s", text, err, want)
			}
		}
	}
	// 44 bytes are the most that the allocator's class of 48 holds.
	if text, err := EncodingCompact.EncodeState(&usually); err != nil || len(text) != 44 {
		t.Errorf("%d bytes: %s (%v)", len(text), text, err)
	}
}

func BenchmarkState(b *testing.B) {
	s := job.State{
		Token: 1_800_000_000_000_123, Revision: 7, Epoch: 3, Lane: job.Lane{Namespace: "ns", Queue: defaultState.Lane.Queue, Priority: 5}, Generation: 1,
		Nominal: 1_800_003_600_000, Due: 1_800_003_600_000, LastNominal: 1_800_000_000_000, LastStarted: 1_800_000_000_001,
		LastFinished: 1_800_000_000_002, LastOutcome: job.OutcomeSucceeded, SettledToken: 1_799_999_999_999_000, Runs: 7, Succeeded: 7, Fired: 7,
	}
	for _, f := range allEncodings[1:] {
		buf, err := f.AppendState(nil, &s)
		if err != nil {
			b.Fatal(err)
		}
		text := string(buf)
		b.Run(fmt.Sprint("written, schema ", int(f)+1), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf, _ = f.AppendState(buf[:0], &s)
			}
		})
		b.Run(fmt.Sprint("read, schema ", int(f)+1), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var read job.State
				if err := DecodeStateInto(&read, "ns/job", text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestHeader fixes the offsets that the scripts rely on.
func TestHeader(t *testing.T) {
	s := job.State{
		Region: job.RegionLeased, Token: 1_800_000_000_000_123, Acked: true, Revision: 42, Epoch: 7, Deleting: true,
		Lane: job.Lane{Namespace: "ns", Queue: "mail", Priority: 5}, Nominal: 1_800_000_000_000, Due: 1_800_000_000_500,
	}
	text, err := EncodingFull.EncodeState(&s)
	if err != nil {
		t.Fatal(err)
	}
	const want = "1800000000000123" + "1" + "1" + "0000000042" + "000007" + "1" + "1" + "q4:mail" + "p5" + "n1800000000000" + "d500"
	if text != want {
		t.Errorf("text\n%s, want\n%s", text, want)
	}
	if g := GuardPattern(s.Token, s.Revision); g != "^"+text[:16]+".."+text[18:28] {
		t.Errorf("guard %s", g)
	}
	for _, bad := range []job.State{{Token: MaxToken + 1}, {Epoch: job.MaxEpoch + 1}, {Region: 5}} {
		if text, err := EncodingFull.EncodeState(&bad); err == nil {
			t.Errorf("%+v became %s", bad, text)
		}
	}
}

func TestStateFieldsOfLaterVersions(t *testing.T) {
	s := job.State{Revision: 1, Lane: job.Lane{Namespace: "ns", Queue: "q"}, Runs: 3}
	text, err := EncodingFull.EncodeState(&s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeState("ns/job", text+"Z5"+"!3:a:b"+"@-7"+"k2")
	s.Succeeded, s.Unknown = 2, "Z5!3:a:b@-7"
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("state %+v (%v)", got, err)
	}
	rewritten, err := EncodingFull.EncodeState(&got)
	if again, err2 := DecodeState("ns/job", rewritten); err != nil || err2 != nil || !reflect.DeepEqual(again, s) {
		t.Errorf("rewritten %s is %+v (%v, %v)", rewritten, again, err, err2)
	}
}

func TestCorruptStates(t *testing.T) {
	good := strings.Repeat("0", 18) + "0000000001" + "000000" + "01"
	if _, err := DecodeState("ns/job", good); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "x", good[:35], good[:35] + "0", good[:35] + "4", good[:16] + "5" + good[17:], good[:17] + "2" + good[18:], good[:34] + "2" + "1",
		good[:18] + "9999999999" + good[28:], " " + good[1:], good[:35] + "x",
		good + "q", good + "q5", good + "q9:cut", good + "q-1:", good + "q99999999999999999999:", good + "r99999999999999999999",
		good + "r-1", good + "a4294967296", good + "p10", good + "t3", good + "s10", good + "o9", good + "c2", good + "M3", good + "W3", good + "P4", good + "b7", good + "H4",
		good + "i65", good + "O7:1 2 3 4", good + "O9:1 2 256 4", good + "O9:a 2 3 4 x", good + "O5", good + "d4:time", good + "n9223372036854775808",
		good + "q18446744073709551615:x", good + "-", good + "r1 ",
	} {
		if s, err := DecodeState("ns/job", text); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q is %+v (%v)", text, s, err)
		}
	}
	for _, tail := range []string{"n", "n??????", "n??????:", "n??????5", "n??????\x7f", "n?\xff?????", "n-", "n:", "n???????7"} {
		if s, err := DecodeState("ns/job", good[:35]+"3"+tail); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q is %+v (%v)", tail, s, err)
		}
	}
	if s, err := DecodeState("ns/job", good[:35]+"2n???????"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("base 64 in a tail of version 2 is %+v (%v)", s, err)
	}
	if _, err := DecodeState("no record", good); !errors.Is(err, ErrCorrupt) {
		t.Errorf("record id: %v", err)
	}
}

func FuzzDecodeState(f *testing.F) {
	f.Add("1800000000000123110000000042000007" + "11" + "q4:mail" + "p5" + "n1800000000000" + "d500")
	f.Add("1800000000000123110000000042000007" + "11" + "q4:mail" + "O13:5 60 2 3 b-id" + "P3" + "b2" + "B1:k" + "v-5" + "C3" + "G1" + "H2" + "I60000")
	f.Add("000000000000000000000000000100000002" + "n1800000000000L-60000o1S5E7K-2000r3k2")
	f.Add("000000000000000000000000000100000003" + "nYKWVD??L-60000o1S5E7K-2000r3k2J0o0")
	f.Add("000000000000000000000000000100000003" + "n-5d7")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := DecodeState("ns/job", text)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if s.Token > MaxToken {
			return // a header can hold more than what is ever minted
		}
		for _, f := range allEncodings {
			again, err := f.EncodeState(&s)
			if err != nil {
				t.Fatalf("%q was read, but cannot be written: %v", text, err)
			}
			if got, err := DecodeState("ns/job", again); err != nil || !reflect.DeepEqual(got, s) {
				t.Fatalf("%q\nbecame %+v (%v)\nwant   %+v", text, got, err, s)
			}
		}
	})
}
