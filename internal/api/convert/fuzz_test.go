package convert

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// FuzzJob: whatever a client sends as a job is refused by field or is a
// definition that is answered as it is kept.
func FuzzJob(f *testing.F) {
	seeds := []*fermatav1.Job{
		{Handler: "http", Schedule: &fermatav1.Schedule{
			Rule:       &fermatav1.Schedule_Cron{Cron: &fermatav1.CronSchedule{Expressions: []string{"H * * * *"}, TimeZone: "Europe/Berlin"}},
			Exclusions: &fermatav1.Exclusions{Dates: []string{"12-25"}, Windows: []string{"22:00-06:00"}}, Jitter: durationpb.New(time.Minute), MaxRuns: 3,
		}},
		{Handler: "x", Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(time.Minute)}}},
			BackoffPolicy: &fermatav1.BackoffPolicy{Preset: "monitor"}, RetryPolicy: &fermatav1.RetryPolicy{Preset: "webhook"},
			Locks: []*fermatav1.Lock{{Key: "k"}}, MisfirePolicy: &fermatav1.MisfirePolicy{Policy: fermatav1.MisfirePolicy_POLICY_RUN_ALL}},
		{Handler: "y", Timeout: &durationpb.Duration{Seconds: 1 << 62, Nanos: -5}, OverlapPolicy: 99, OverlapLimit: -1},
	}
	for n := range 20 { // every field is in use in some of them
		d := rapid.Custom(drawDefinition).Example(n)
		seeds = append(seeds, DefinitionToPB(&d))
	}
	for _, j := range seeds {
		wire, err := proto.Marshal(j)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		var j fermatav1.Job
		if proto.Unmarshal(wire, &j) != nil {
			return
		}
		var r Reader
		d := r.Definition(key, &j)
		d.AnchorMS = 1_800_000_000_000
		if r.Err() != nil || len(job.Validate(&d, job.Limits{}.WithDefaults())) > 0 {
			return
		}
		if _, err := job.Compile(&d); err != nil {
			t.Fatalf("passed as valid: %v\n%+v", err, d)
		}
		var again Reader
		if got := again.Definition(key, DefinitionToPB(&d)); again.Err() != nil || !got.Equal(&d) {
			t.Fatalf("%v\nkept     %+v\nanswered %+v", again.Err(), d, got)
		}
	})
}
