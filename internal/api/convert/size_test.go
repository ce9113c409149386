package convert

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// TestResponseSizes: pages of lists are bounded by an estimate of what jobs take in responses.
func TestResponseSizes(t *testing.T) {
	long := strings.Repeat("x", 250)
	labels := map[string]string{}
	for i := range 32 {
		labels[fmt.Sprint("label-", i)] = long
	}
	at := time.Unix(1_800_000_000, 0)
	for name, change := range map[string]func(*job.Record){
		"plain":   func(*job.Record) {},
		"payload": func(r *job.Record) { r.Definition.Payload = make([]byte, 100_000) },
		"labels":  func(r *job.Record) { r.Definition.Labels = labels },
		"dates": func(r *job.Record) {
			r.Definition.Schedule.Exclude.Dates = slices.Repeat([]string{"2026-12-24/2027-01-02"}, 400)
		},
		"windows": func(r *job.Record) {
			r.Definition.Schedule.Exclude.Windows = slices.Repeat([]string{"Mon-Fri 12:00-13:00"}, 32)
		},
		"periods": func(r *job.Record) {
			r.Definition.Schedule.Exclude.Periods = slices.Repeat([]schedule.Period{{From: at, To: at.Add(time.Hour)}}, 100)
		},
		"cron": func(r *job.Record) {
			r.Definition.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: slices.Repeat([]string{long}, 16)}
		},
		"an error": func(r *job.Record) { r.State.LastError = long + long },
	} {
		r := job.Record{Definition: &job.Definition{
			Key: job.Key{Namespace: "team-a", ID: "nightly-report"}, Queue: "default", Handler: "report",
			Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Hour},
		}}
		change(&r)
		if got, want := r.ResponseSize(), proto.Size(RecordToPB(r, 0)); want > 2*got || got > 2*want+500 {
			t.Errorf("%s: estimated as %d bytes, takes %d", name, got, want)
		}
	}
}
