package convert

import (
	"math"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestCountersOfBackupsHaveRoom: a restored counter can be counted on without an overflow.
func TestCountersOfBackupsHaveRoom(t *testing.T) {
	for name, p := range map[string]*fermatav1.Checkpoint{
		"generation":     {Generation: math.MaxUint32},
		"revision":       {Revision: math.MaxUint32},
		"scheduled_runs": {ScheduledRuns: math.MaxInt32 + 1},
		"runs_total":     {RunsTotal: math.MaxInt64},
	} {
		var r Reader
		r.readCheckpoint("checkpoint", p)
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want a refusal of this field", name, err)
		}
	}
}

// TestNamesOfRevisionsAreReadable: a backup cannot put names into the history of a job that display as others.
func TestNamesOfRevisionsAreReadable(t *testing.T) {
	for name, p := range map[string]*fermatav1.JobRevision{
		"identity": {Revision: 1, Identity: "token:other\x1b[31m"},
		"method":   {Revision: 1, Method: "Update\u202eJob"},
		"revision": {Revision: math.MaxUint32, Job: &fermatav1.Job{}},
	} {
		var r Reader
		r.readRevisions(&job.Backup{}, []*fermatav1.JobRevision{p})
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), "revisions[0]."+name) {
			t.Errorf("%s: %v, want a refusal of this field", name, err)
		}
	}
}
