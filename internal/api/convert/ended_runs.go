package convert

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// AnyJob takes the place of a job in a parent: all jobs that the caller may see. No job has this id.
const AnyJob = "-"

// ParseJobsParent reads a parent that names a job or all jobs. all: it names those of a namespace, or with
// [AnyNamespace] those of all.
func ParseJobsParent(field, name string) (namespace string, all bool, err error) {
	if inside, ok := strings.CutSuffix(name, "/jobs/"+AnyJob); ok {
		namespace, err = ParseNamespace(field, inside)
		if err == nil && namespace != AnyNamespace {
			err = ValidateKey(field, job.Key{Namespace: namespace, ID: "x"})
		}
		return namespace, true, err
	}
	key, err := ParseJobName(field, name)
	return key.Namespace, false, err
}

// maxOutcomes bounds the outcomes of a request: there are seven.
const maxOutcomes = 16

// EndedRunsQueryFromPB reads a request for the runs of all jobs, without its parent and filter.
func EndedRunsQueryFromPB(q *fermatav1.ListRunsRequest) (job.EndedRunsQuery, error) {
	var r Reader
	query := job.EndedRunsQuery{
		StartMS: r.windowBound("start_time", q.GetStartTime()), EndMS: r.windowBound("end_time", q.GetEndTime()),
		Filter: job.Filter{Queue: q.GetQueue()}, PageSize: int(q.GetPageSize()), Token: q.GetPageToken(),
	}
	if len(q.GetOutcomes()) > maxOutcomes {
		return query, job.Invalid("outcomes", "has %d entries, want at most %d", len(q.GetOutcomes()), maxOutcomes)
	}
	for i, o := range q.GetOutcomes() {
		outcome := outcomes.FromPB(o)
		if outcome == job.OutcomeNone || outcome == Unknown {
			return query, job.Invalid(fmt.Sprintf("outcomes[%d]", i), "is unknown")
		}
		query.Outcomes = append(query.Outcomes, outcome)
	}
	return query, r.Err()
}

// windowBound reads a bound of a window of times as Unix milliseconds, at least 1; 0 where it is unset. It rounds up,
// because an instant that is stored has no fraction of a millisecond.
func (r *Reader) windowBound(field string, t *timestamppb.Timestamp) unixtime.Milli {
	if t == nil {
		return 0
	}
	return min(max(1, unixtime.MilliOf(r.Begin(field, "", t))), job.NeverMS)
}

// EndedRunToPB converts a run of a list of the runs of all jobs.
func EndedRunToPB(r job.EndedRun) *fermatav1.Run {
	p := RunToPB(r.Key, job.RunView{Run: r.Run, Phase: job.RunFinished})
	p.Queue, p.LastAttemptOutcome = r.Queue, outcomes.ToPB(r.LastAttempt)
	return p
}
