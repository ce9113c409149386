package codec

import (
	"reflect"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

func TestKeptRunRoundTrip(t *testing.T) {
	run := job.Run{
		ID: job.RunID(job.TriggerSchedule, 7, 1_800_000_000_000, ""), NominalMS: 1_800_000_000_000, DueMS: 1_800_000_000_000,
		StartedMS: 1_800_000_000_001, FinishedMS: 1_800_000_000_009, Attempts: 1, Outcome: job.OutcomeSucceeded, Worker: "w",
	}
	later, long, manual := run, run, run
	later.DueMS, later.Attempts, later.Losses, later.Output = run.DueMS+5000, 3, 1, []byte("\x00out")
	long.Output = []byte(strings.Repeat("o", MaxKeptRun+1))
	manual.ID, manual.Trigger = "m-1", job.TriggerManual
	for name, c := range map[string]struct {
		run  job.Run
		kept bool
	}{"plain": {run, true}, "after a retry": {later, true}, "long output": {long, false}, "manual": {manual, false}} {
		text, err := EncodeKeptRun(&c.run)
		if err != nil || (text != "") != c.kept {
			t.Fatalf("%s: %q (%v)", name, text, err)
		}
		if !c.kept {
			continue
		}
		full, _ := EncodeRun(&c.run)
		if got, err := DecodeKeptRun(text); err != nil || !reflect.DeepEqual(got, c.run) || len(text) > len(full)-14 {
			t.Errorf("%s: %+v (%v), want %+v, in %d bytes", name, got, err, c.run, len(text))
		}
	}
	if _, err := DecodeKeptRun("\xff"); err == nil {
		t.Error("garbage was decoded")
	}
}
