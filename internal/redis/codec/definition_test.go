package codec

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

var allEncodings = []Encoding{EncodingFull, EncodingSparse, EncodingCompact}

func drawEncoding(t *rapid.T) Encoding { return rapid.SampledFrom(allEncodings).Draw(t, "encoding") }

func drawDefinition(t *rapid.T) job.Definition {
	text := rapid.StringN(0, 40, 80)
	as := func(name string) bool { return rapid.Bool().Draw(t, name+" as usual") }
	ms := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 1<<42))
	dur := func(name string) time.Duration { return time.Duration(ms.Draw(t, name)) * time.Millisecond }
	at := func(name string) time.Time { return timeOfMS(ms.Draw(t, name)) }
	texts := func(name string) []string {
		list := rapid.SliceOfN(text, 0, 3).Draw(t, name)
		if len(list) == 0 {
			return nil
		}
		return list
	}
	jitter := func(name string) backoff.Jitter {
		return backoff.Jitter{Kind: backoff.JitterKind(rapid.IntRange(0, 5).Draw(t, name)), Fraction: rapid.Float64Range(0, 1).Draw(t, name)}
	}
	d := job.Definition{
		Key: job.Key{Namespace: "ns", ID: "job"}, Queue: text.Draw(t, "queue"), Priority: uint8(rapid.IntRange(0, 9).Draw(t, "priority")),
		Handler: text.Draw(t, "handler"), Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"), PayloadKey: text.Draw(t, "payloadkey"),
		Labels: rapid.MapOf(text, text).Draw(t, "labels"),
		Schedule: schedule.Spec{
			Kind: schedule.Kind(rapid.IntRange(0, 4).Draw(t, "kind")), At: at("at"), Every: dur("every"), FixedDelay: rapid.Bool().Draw(t, "fixed"),
			Cron: rapid.SliceOf(text).Draw(t, "cron"), TimeZone: text.Draw(t, "zone"), Seconds: rapid.Bool().Draw(t, "seconds"),
			Gap: schedule.GapPolicy(rapid.IntRange(0, 1).Draw(t, "gap")), Repeat: schedule.RepeatPolicy(rapid.IntRange(0, 2).Draw(t, "repeat")), StartAt: at("start"), EndAt: at("end"),
			Jitter: dur("spread"), MaxRuns: rapid.IntRange(0, 1<<30).Draw(t, "maxruns"),
			Exclude:  schedule.Exclusions{Cron: texts("excron"), Dates: texts("dates"), Windows: texts("windows")},
			Calendar: drawCalendar(t, texts("times"), text.Draw(t, "from day")),
		},
		Retry: backoff.Retry{
			Strategy: backoff.Strategy(rapid.IntRange(0, 3).Draw(t, "strategy")), Base: dur("base"), Multiplier: rapid.Float64().Draw(t, "multiplier"),
			Offset: rapid.IntRange(0, 1).Draw(t, "offset"), MaxDoublings: rapid.IntRange(0, 1000).Draw(t, "doublings"), MaxDelay: dur("maxdelay"),
			MaxAttempts: rapid.IntRange(0, 1000).Draw(t, "attempts"), MaxElapsed: dur("elapsed"), Jitter: jitter("retryjitter"),
		},
		Backoff: backoff.Recurring{
			Disabled: rapid.Bool().Draw(t, "disabled"), Multiplier: rapid.Float64().Draw(t, "growth"), MaxExponent: rapid.IntRange(0, 62).Draw(t, "exponent"),
			MaxDelay: dur("cap"), MaxRatio: rapid.Float64().Draw(t, "ratio"), Jitter: jitter("jitter"), StaleAfter: dur("stale"), StaleHalve: rapid.Bool().Draw(t, "halve"),
			WithinSlot: rapid.Bool().Draw(t, "within"),
		},
		MinInterval: dur("min"), MaxInterval: dur("max"), Timeout: dur("timeout"), TimeoutGrace: dur("grace"),
		HistoryLimit: rapid.IntRange(0, MaxHistory).Draw(t, "history"), Retention: dur("retention"), DeadLetterTTL: dur("ttl"),
		Generation: rapid.Uint32().Draw(t, "generation"), AnchorMS: unixtime.Milli(ms.Draw(t, "anchor")), Revision: rapid.Uint32().Draw(t, "revision"),
		CreatedMS: unixtime.Milli(ms.Draw(t, "created")), UpdatedMS: unixtime.Milli(ms.Draw(t, "updated")), CreateRequestID: text.Draw(t, "create"), UpdateRequestIDs: drawEdits(t, text),
		Overlap: job.Overlap(rapid.IntRange(0, int(job.OverlapTerminateOther)).Draw(t, "overlap")), OverlapLimit: rapid.IntRange(0, job.MaxBufferedRuns).Draw(t, "limit"),
		Misfire: job.Misfire{
			Policy: job.MisfirePolicy(rapid.IntRange(0, int(job.MisfireRunAll)).Draw(t, "misfire")), Window: dur("window"),
			MaxCatchUp: rapid.IntRange(0, job.MaxCatchUpRuns).Draw(t, "catchup"),
		},
		Target: text.Draw(t, "target"), PauseAfter: rapid.IntRange(0, 1000).Draw(t, "pauseafter"), MaxLag: dur("maxlag"),
	}
	for range rapid.IntRange(0, job.MaxLocks).Draw(t, "locks") {
		d.Locks = append(d.Locks, job.Lock{Key: text.Draw(t, "lock"), Limit: rapid.IntRange(0, job.MaxLockLimit).Draw(t, "units")})
	}
	for range rapid.IntRange(0, 3).Draw(t, "periods") {
		d.Schedule.Exclude.Periods = append(d.Schedule.Exclude.Periods, schedule.Period{From: at("from"), To: at("to")})
	}
	if rapid.Bool().Draw(t, "traced") {
		d.Trace = new(drawTrace(t))
	}
	if rapid.Bool().Draw(t, "whole seconds") {
		d.Schedule.Kind, d.Schedule.Every = schedule.KindInterval, d.Schedule.Every.Truncate(time.Second)
	}
	if as("lane") {
		d.Queue, d.Priority = defaults.Queue, defaults.Priority
	}
	if as("retry") {
		d.Retry = defaultRetryOf(&d)
	}
	if as("backoff") {
		d.Backoff = defaults.Backoff
	}
	if as("times") {
		d.Timeout, d.TimeoutGrace, d.Retention, d.DeadLetterTTL = defaults.Timeout, defaults.TimeoutGrace, defaults.Retention, defaults.DeadLetterTTL
	}
	if as("first") {
		d.Generation, d.Revision, d.CreatedMS, d.UpdatedMS = 1, 1, d.AnchorMS, d.AnchorMS
	}
	for range rapid.IntRange(0, 3).Draw(t, "sources") {
		d.Sources = append(d.Sources, backoff.Group{
			Source: backoff.Source{Kind: backoff.SourceKind(rapid.IntRange(0, 5).Draw(t, "source")), Name: text.Draw(t, "source name")},
			Fields: backoff.FieldSet(rapid.Uint32().Draw(t, "sourced")),
		})
	}
	if rapid.Bool().Draw(t, "edited") {
		d.LastEdit = job.Edit{Identity: text.Draw(t, "identity"), Method: text.Draw(t, "method")}
	}
	if len(d.Payload) == 0 {
		d.Payload = nil
	}
	if len(d.Labels) == 0 {
		d.Labels = nil
	}
	if len(d.Schedule.Cron) == 0 {
		d.Schedule.Cron = nil
	}
	return d
}

// TestDefinitionRoundTrip fails too when a field is added to Definition and not to
// drawDefinition.
func TestDefinitionRoundTrip(t *testing.T) {
	drawn := drawnFieldSet{}
	rapid.Check(t, func(t *rapid.T) {
		f, want := drawEncoding(t), drawDefinition(t)
		drawn.note(want)
		b, err := f.EncodeDefinition(&want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeDefinition("ns/job", string(b))
		if err != nil || !reflect.DeepEqual(got, &want) {
			t.Fatalf("is   %+v (%v)\nwant %+v", got, err, want)
		}
		if again, _ := f.EncodeDefinition(got); !bytes.Equal(again, b) {
			t.Fatal("equal definitions are not equal bytes")
		}
	})
	drawn.complete(t, reflect.TypeFor[job.Definition](), ".Unknown")
}

func drawCalendar(t *rapid.T, times []string, from string) schedule.Calendar {
	c := schedule.Calendar{
		Every: rapid.IntRange(0, 1000).Draw(t, "calendar every"), Unit: schedule.CalendarUnit(rapid.IntRange(0, 2).Draw(t, "unit")),
		Times: times, From: from, ShortMonth: schedule.ShortMonthPolicy(rapid.IntRange(0, 1).Draw(t, "short month")),
	}
	for range rapid.IntRange(0, 2).Draw(t, "weekdays") {
		c.Weekdays = append(c.Weekdays, time.Weekday(rapid.IntRange(0, 6).Draw(t, "weekday")))
	}
	for range rapid.IntRange(0, 2).Draw(t, "month days") {
		c.MonthDays = append(c.MonthDays, rapid.IntRange(-31, 31).Draw(t, "month day"))
	}
	return c
}

// TestDefinitionCarriesEveryField fails when the storage message has a field
// that the codec leaves zero.
func TestDefinitionCarriesEveryField(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDefinition(t)
		b, err := drawEncoding(t).EncodeDefinition(&d)
		if err != nil {
			t.Fatal(err)
		}
		var m storagev1.Definition
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		if again, _ := deterministic.Marshal(&m); !bytes.Equal(again, b) {
			t.Fatal("the message is not what was written")
		}
	})
	full := storagev1.Definition{}
	d, err := DecodeDefinition("ns/job", mustMarshal(t, &full))
	if err != nil || d.Unknown != nil {
		t.Errorf("an empty message: %+v (%v)", d, err)
	}
}

func mustMarshal(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := deterministic.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDefinitionKeepsUnknownFields rewrites what a later version has written, at
// every level, and edits it in between, in either encoding.
func TestDefinitionKeepsUnknownFields(t *testing.T) {
	later := func(n protowire.Number, text string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), text)
	}
	m := &storagev1.Definition{
		Handler: "send", Schedule: &storagev1.Schedule{Kind: 2, EveryMs: 1000, Exclude: &storagev1.Exclusions{Dates: []string{"12-25"}}, Calendar: &storagev1.Calendar{Every: 2}},
		Retry:   &storagev1.Retry{MaxAttempts: 3, Jitter: &storagev1.Jitter{Kind: 1}},
		Backoff: &storagev1.Recurring{Multiplier: 2, Jitter: &storagev1.Jitter{Fraction: 0.5}},
		Misfire: &storagev1.Misfire{Policy: 1},
	}
	levels := []proto.Message{m, m.Schedule, m.Schedule.Exclude, m.Schedule.Calendar, m.Retry, m.Retry.Jitter, m.Backoff, m.Backoff.Jitter, m.Misfire}
	for i, l := range levels {
		l.ProtoReflect().SetUnknown(later(1000, string(rune('a'+i))))
	}
	d, err := DecodeDefinition("ns/job", mustMarshal(t, m))
	if err != nil {
		t.Fatal(err)
	}
	d.Handler, d.Retry.MaxAttempts = "edited", 5
	m.Handler, m.Retry.MaxAttempts = "edited", 5
	b, err := EncodingFull.EncodeDefinition(d)
	if err != nil {
		t.Fatal(err)
	}
	var got storagev1.Definition
	if err := proto.Unmarshal(b, &got); err != nil || !proto.Equal(&got, m) {
		t.Errorf("is   %v (%v)\nwant %v", &got, err, m)
	}
	d.Retry, d.Backoff = defaultRetryOf(d), defaults.Backoff
	for _, f := range allEncodings[1:] {
		b, err = f.EncodeDefinition(d)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := DecodeDefinition("ns/job", string(b)); err != nil || !reflect.DeepEqual(again, d) {
			t.Errorf("is   %+v (%v)\nwant %+v", again, err, d)
		}
	}
}

func drawEdits(t *rapid.T, text *rapid.Generator[string]) job.RequestIDs {
	id := text.Filter(func(s string) bool { return s != "" })
	if n := rapid.IntRange(0, job.MaxRecent).Draw(t, "edits"); n > 0 {
		return rapid.SliceOfN(id, n, n).Draw(t, "update")
	}
	return nil
}

// drawPlain is a definition of the kind that most are.
func drawPlain(t *rapid.T) job.Definition {
	d := drawDefinition(t)
	d.Schedule.Exclude, d.Schedule.Calendar, d.Locks, d.Trace = schedule.Exclusions{}, schedule.Calendar{}, nil, nil
	d.UpdateRequestIDs = d.UpdateRequestIDs[max(0, len(d.UpdateRequestIDs)-1):]
	return d
}

// What is read the plain way is what the general way would have read.
func TestPlainDefinitionsAreReadAsAny(t *testing.T) {
	var r DefinitionDecoder
	rapid.Check(t, func(t *rapid.T) {
		want := drawPlain(t)
		b, err := drawEncoding(t).EncodeDefinition(&want)
		if err != nil {
			t.Fatal(err)
		}
		r.input = append(r.input[:0], b...)
		d := r.decodeFields(want.Key)
		if d == nil || !reflect.DeepEqual(d, &want) {
			t.Fatalf("is   %+v\nwant %+v", d, want)
		}
		clear(r.input) // nothing of it is kept
		if !reflect.DeepEqual(d, &want) {
			t.Fatalf("became %+v", d)
		}
	})
	for name, edit := range map[string]func(*job.Definition){
		"exclusions": func(d *job.Definition) { d.Schedule.Exclude.Dates = []string{"12-25"} },
		"calendar":   func(d *job.Definition) { d.Schedule.Calendar.Every = 2 },
		"locks":      func(d *job.Definition) { d.Locks = []job.Lock{{Key: "db", Limit: 1}} },
		"trace":      func(d *job.Definition) { d.Trace = &job.Trace{} },
		"edits":      func(d *job.Definition) { d.UpdateRequestIDs = job.RequestIDs{"one", "two"} },
		"later":      func(d *job.Definition) { d.Unknown = []byte{0xd8, 0x07, 5} },
	} {
		for _, f := range allEncodings[1:] {
			d := hourly()
			edit(&d)
			var err error
			if r.input, err = f.EncodeDefinition(&d); err != nil {
				t.Fatal(err)
			}
			if got := r.decodeFields(d.Key); got != nil {
				t.Errorf("%s: taken for plain: %+v", name, got)
			}
		}
	}
}

// A policy that is stored in two parts is both together, and one of which a later version
// says more is kept whole: neither is taken from what was read last.
func TestPoliciesThatAreNotPlain(t *testing.T) {
	d := hourly()
	d.Retry.MaxAttempts, d.Backoff.MaxExponent = 7, 3
	stored, err := EncodingCompact.EncodeDefinition(&d)
	if err != nil {
		t.Fatal(err)
	}
	more := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)
	for name, m := range map[string]*storagev1.Definition{
		"retry in parts":   {Retry: &storagev1.Retry{MaxElapsedMs: 5}},
		"backoff in parts": {Backoff: &storagev1.Recurring{WithinSlot: true}},
		"more of retry":    {Retry: &storagev1.Retry{}},
		"more of backoff":  {Backoff: &storagev1.Recurring{Jitter: &storagev1.Jitter{}}},
	} {
		want := d
		switch name {
		case "retry in parts":
			want.Retry.MaxElapsed = 5 * time.Millisecond
		case "backoff in parts":
			want.Backoff.WithinSlot = true
		case "more of retry":
			m.Retry.ProtoReflect().SetUnknown(more)
		default:
			m.Backoff.Jitter.ProtoReflect().SetUnknown(more)
		}
		var r DefinitionDecoder
		if _, err := r.Decode("ns/job", string(stored)); err != nil {
			t.Fatal(err)
		}
		got, err := r.Decode("ns/job", string(stored)+mustMarshal(t, m))
		if err != nil {
			t.Fatal(err)
		}
		if kept := got.Unknown != nil; kept != strings.HasPrefix(name, "more") {
			t.Errorf("%s: keeps %x", name, got.Unknown)
		}
		if got.Unknown = nil; !reflect.DeepEqual(got, &want) {
			t.Errorf("%s:\nis   %+v\nwant %+v", name, got, &want)
		}
	}
}

// hourly is a job that is as most are.
func hourly() job.Definition {
	d := defaults
	d.Key, d.Handler, d.Payload = job.Key{Namespace: "ns", ID: "job"}, "noop", make([]byte, 200)
	d.Schedule = schedule.Spec{Kind: schedule.KindInterval, Every: time.Hour}
	d.AnchorMS, d.CreatedMS, d.UpdatedMS = 1_800_000_000_000, 1_800_000_000_000, 1_800_000_000_000
	d.Retry = defaultRetryOf(&d)
	return d
}

// TestDefinitionsOfPlainJobsStaySmall: 220 bytes are the most that the allocator's
// class of 224 holds.
func TestDefinitionsOfPlainJobsStaySmall(t *testing.T) {
	for _, c := range []struct {
		what     string
		encoding Encoding
		edit     func(*job.Definition)
		want     int
	}{
		{"schema 1", EncodingFull, func(*job.Definition) {}, 337},
		{"schema 2", EncodingSparse, func(*job.Definition) {}, 228},
		{"as usual", EncodingCompact, func(*job.Definition) {}, 220},
		{"with a start", EncodingCompact, func(d *job.Definition) { d.Schedule.StartAt = timeOfMS(int64(d.AnchorMS)) }, 220 + 2 + 7},
		{"one group present", EncodingCompact, func(d *job.Definition) { d.Priority = 7 }, 220 + 3 + 9 + 2},
		{"milliseconds", EncodingCompact, func(d *job.Definition) { d.Schedule.Every += time.Millisecond }, 228},
	} {
		d := hourly()
		c.edit(&d)
		b, err := c.encoding.EncodeDefinition(&d)
		if err != nil || len(b) != c.want {
			t.Errorf("%s: %d bytes, want %d (%v)", c.what, len(b), c.want, err)
		}
	}
}

// TestGroupsThatAreNotKnown: nobody may guess what a later schema leaves out.
func TestGroupsThatAreNotKnown(t *testing.T) {
	for _, m := range []*storagev1.Definition{{Usual: allGroups + 1}, {IntervalS: 60, Told: allGroups + 1}} {
		if d, err := DecodeDefinition("ns/job", mustMarshal(t, m)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v is %+v (%v)", m, d, err)
		}
	}
}

func BenchmarkDecodeDefinition(b *testing.B) {
	d := hourly()
	d.HistoryLimit, d.CreateRequestID = 10, "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
	for _, f := range allEncodings[1:] {
		benchmarkDecode(b, fmt.Sprint("schema ", int(f)+1), f, d)
	}
	d.Retry.Base, d.Retry.MaxAttempts = 2*time.Second, 8
	d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"*/5 * * * *"}, TimeZone: "Europe/Berlin"}
	benchmarkDecode(b, "cron with retries", EncodingCompact, d)
	d.Locks = []job.Lock{{Key: "db", Limit: 1}}
	benchmarkDecode(b, "with a lock", EncodingCompact, d)
}

func benchmarkDecode(b *testing.B, name string, f Encoding, d job.Definition) {
	text, err := f.EncodeDefinition(&d)
	if err != nil {
		b.Fatal(err)
	}
	var r DefinitionDecoder
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Decode("ns/job", string(text)); err != nil {
				b.Fatal(err)
			}
		}
	})
	// The twin: the same definition by way of the generated message.
	b.Run(name+" by protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.input = append(r.input[:0], text...)
			if _, err := r.decodeMessage(d.Key); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func drawRun(t *rapid.T) job.Run {
	text, ms := rapid.String(), rapid.Int64()
	return job.Run{
		ID: text.Draw(t, "id"), Trigger: job.Trigger(rapid.IntRange(0, int(job.TriggerBackfill)).Draw(t, "trigger")),
		NominalMS: unixtime.Milli(ms.Draw(t, "nominal")), DueMS: unixtime.Milli(ms.Draw(t, "due")), StartedMS: unixtime.Milli(ms.Draw(t, "started")), FinishedMS: unixtime.Milli(ms.Draw(t, "finished")),
		Attempts: rapid.Uint32().Draw(t, "attempts"), Losses: rapid.Uint32().Draw(t, "losses"),
		Outcome: job.Outcome(rapid.IntRange(0, int(job.OutcomeCancelled)).Draw(t, "outcome")), Error: text.Draw(t, "error"),
		Output: rapid.SliceOf(rapid.Byte()).Draw(t, "output"), Worker: text.Draw(t, "worker"),
		Caller: rapid.SampledFrom([]*job.TraceID{nil, {}, {1, 255}}).Draw(t, "caller"),

		OwnPayload: rapid.SampledFrom([]*job.PayloadInfo{nil, {}, {Size: 9, Sealed: true, Digest: [32]byte{1, 31: 255}}}).Draw(t, "own payload"),
		AttemptLog: drawAttempts(t),
	}
}

func TestRunRoundTrip(t *testing.T) {
	want := job.Run{
		ID: "3-1800", Trigger: job.TriggerManual, NominalMS: 1, DueMS: 2, StartedMS: 3, FinishedMS: 4, Attempts: 5, Losses: 6,
		Outcome: job.OutcomeDead, Error: "no luck", Output: []byte{0, 255}, Worker: "w1", Caller: &job.TraceID{9},
	}
	b, err := EncodeRun(&want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeRun(string(b)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("is %+v (%v)", got, err)
	}
	if _, err := DecodeRun("\xff"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("garbage: %v", err)
	}
	if _, err := EncodeRun(&job.Run{Error: "\xff"}); err == nil {
		t.Error("text that is not UTF-8 was written")
	}
	// The bytes that are stored today.
	stored := "\n\x063-1800\x10\x01\x18\x01 \x02(\x030\x048\x05@\x06H\x05R\ano luckZ\x02\x00\xffb\x02w1\xe2\x03\x10\t" + strings.Repeat("\x00", 15)
	if string(b) != stored {
		t.Fatalf("stored as %q", b)
	}
	rapid.Check(t, func(t *rapid.T) {
		want := drawRun(t)
		b, err := AppendRun([]byte("before"), &want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRun(strings.TrimPrefix(string(b), "before"))
		if len(want.Output) == 0 {
			want.Output = nil
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("is   %+v\nwant %+v (%v)", got, want, err)
		}
	})
}

func FuzzDecodeDefinition(f *testing.F) {
	f.Add("")
	for _, encoding := range allEncodings {
		d := hourly()
		for range 2 {
			b, err := encoding.EncodeDefinition(&d)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(b))
			d.Retry.MaxAttempts, d.Backoff.MaxExponent, d.Misfire.MaxCatchUp, d.Target = 7, 3, 2, "mail"
			d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"*/5 * * * *"}, TimeZone: "Europe/Berlin"}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := DefinitionDecoder{input: []byte(text)}
		if plain := r.decodeFields(job.Key{Namespace: "ns", ID: "job"}); plain != nil {
			if general, err := r.decodeMessage(plain.Key); err != nil || !reflect.DeepEqual(plain, general) {
				t.Errorf("plain is %+v\nwant     %+v (%v)", plain, general, err)
			}
		}
		d, err := DecodeDefinition("ns/job", text)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v", err)
			}
			return
		}
		for _, f := range allEncodings {
			if b, err := f.EncodeDefinition(d); err != nil || len(b) > len(text)+1<<10 {
				t.Fatalf("read, but cannot be written: %d bytes, %v", len(b), err)
			}
		}
	})
}
