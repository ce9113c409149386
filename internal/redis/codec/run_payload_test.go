package codec

import (
	"errors"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestEarlierNodesCannotReadARunWithPayload: they would run it with the job's payload. They know triggers up to 2, and
// set a record with another one aside.
func TestEarlierNodesCannotReadARunWithPayload(t *testing.T) {
	own := (&job.RunPayload{Payload: []byte("x")}).Describe()
	for f := EncodingFull; f <= EncodingCompact; f++ {
		s := job.State{Region: job.RegionDue, Revision: 1, Lane: job.Lane{Namespace: "n", Queue: "q"}, Trigger: job.TriggerManual,
			ManualID: "m", Nominal: 5, Due: 5, OwnPayload: own}
		text, err := f.EncodeState(&s)
		if err != nil || !strings.Contains(text, "t3") {
			t.Errorf("%v: %q, %v", f, text, err)
		}
		s.OwnPayload = nil
		text, err = f.EncodeState(&s)
		if err != nil || !strings.Contains(text, "t1") || strings.Contains(text, "$") {
			t.Errorf("%v, without: %q, %v", f, text, err)
		}
	}
}

// TestADamagedDescriptionIsCorrupt: a run without a known payload must not run.
func TestADamagedDescriptionIsCorrupt(t *testing.T) {
	own := (&job.RunPayload{Payload: []byte("x"), Key: "k"}).Describe()
	s := job.State{Region: job.RegionDue, Revision: 1, Lane: job.Lane{Namespace: "n", Queue: "q"}, Trigger: job.TriggerManual,
		ManualID: "m", Nominal: 5, Due: 5, OwnPayload: own}
	text, err := EncodingFull.EncodeState(&s)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.IndexByte(text, '$')
	for name, bad := range map[string]string{
		"without it": text[:at], "of another trigger": strings.Replace(text, "t3", "t1", 1), "not hexadecimal": strings.Replace(text, " 1 ", " 1 z", 1)[:len(text)],
		"with another flag": strings.Replace(text, " 1 ", " 2 ", 1), "as a number": text[:at] + "$7",
	} {
		if got, err := DecodeState("n/j#r1", bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, got.OwnPayload, err)
		}
	}
}

// TestPayloadOfARunCompletesADefinition: a definition without a payload, followed by the payload of a run, has it.
func TestPayloadOfARunCompletesADefinition(t *testing.T) {
	d := job.Definition{Key: job.Key{Namespace: "n", ID: "j"}, Queue: "q", Handler: "h", Payload: []byte("job's"), PayloadKey: "old"}
	for _, own := range []*job.RunPayload{{}, {Payload: []byte("own")}, {Payload: []byte("sealed"), Key: "k"}} {
		for f := EncodingFull; f <= EncodingCompact; f++ {
			first, err := f.EncodeDefinition(new(job.RunPayload).ApplyTo(&d))
			if err != nil {
				t.Fatal(err)
			}
			rest, err := EncodeRunPayload(own)
			if err != nil {
				t.Fatal(err)
			}
			text := string(first) + string(rest)
			got, err := DecodeDefinition("n/j#d0", text)
			if err != nil || string(got.Payload) != string(own.Payload) || got.PayloadKey != own.Key || got.Handler != "h" {
				t.Errorf("%+v: %+v, %v", own, got, err)
			}
			if alone, err := DecodeRunPayload(text); err != nil || !own.Describe().Describes(alone) {
				t.Errorf("%+v: read alone %+v, %v", own, alone, err)
			}
		}
	}
}
