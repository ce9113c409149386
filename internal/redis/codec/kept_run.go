package codec

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// MaxKeptRun is the maximum size of an ended run that a state keeps in place of the history.
const MaxKeptRun = 256

// EncodeKeptRun encodes the scheduled run of a one-time job for [job.State.KeptRun]. What follows from the nominal time
// is left out: the end of the id, and an equal due time. It returns "" for a run that must be in the history:
// one that is too large, or has another id.
func EncodeKeptRun(r *job.Run) (string, error) {
	id, ok := strings.CutSuffix(r.ID, nominalSuffix(r.NominalMS))
	if !ok || r.Trigger != job.TriggerSchedule || len(r.Output)+len(r.Error) > MaxKeptRun {
		return "", nil
	}
	short := *r
	short.ID = id
	if r.DueMS == r.NominalMS {
		short.DueMS = 0
	}
	text, err := EncodeRun(&short)
	if err != nil || len(text) > MaxKeptRun {
		return "", err
	}
	return string(text), nil
}

// DecodeKeptRun undoes [EncodeKeptRun].
func DecodeKeptRun(text string) (job.Run, error) {
	r, err := DecodeRun(text)
	if err != nil {
		return r, fmt.Errorf("kept: %w", err)
	}
	r.ID += nominalSuffix(r.NominalMS)
	if r.DueMS == 0 {
		r.DueMS = r.NominalMS
	}
	return r, nil
}

// nominalSuffix is how the id of a scheduled run ends.
func nominalSuffix(nominal unixtime.Milli) string { return "-" + strconv.FormatInt(int64(nominal), 10) }
