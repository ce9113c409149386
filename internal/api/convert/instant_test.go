package convert

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Times at which something may begin are rounded up, ends are rounded down, and what is
// read back is read as the same again.
func TestGivenInstantsAreRoundedToTheirSafeSide(t *testing.T) {
	given := time.Date(2030, 1, 1, 0, 0, 0, 1_500_001, time.UTC)
	up, down := time.Date(2030, 1, 1, 0, 0, 0, 2_000_000, time.UTC), time.Date(2030, 1, 1, 0, 0, 0, 1_000_000, time.UTC)
	pb := timestamppb.New(given)
	var r Reader
	once := r.Schedule("s", &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: pb}})
	bounded := r.Schedule("s", &fermatav1.Schedule{
		Rule:      &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(time.Minute)}},
		StartTime: pb, EndTime: timestamppb.New(given.Add(time.Hour)),
		Exclusions: &fermatav1.Exclusions{Periods: []*fermatav1.Exclusions_Period{{StartTime: pb, EndTime: timestamppb.New(given.Add(time.Hour))}}},
	})
	hint := r.Hint("h", &fermatav1.Hint{NextRunTime: pb, ExpireTime: pb, Interval: durationpb.New(time.Second + 1)})
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ got, want time.Time }{
		"once":                  {once.At, up},
		"start_time":            {bounded.StartAt, up},
		"end_time":              {bounded.EndAt, down.Add(time.Hour)},
		"periods.start_time":    {bounded.Exclude.Periods[0].From, up},
		"periods.end_time":      {bounded.Exclude.Periods[0].To, up.Add(time.Hour)},
		"hint.next_run_time":    {hint.AtMS.Time(), up},
		"hint.expire_time":      {hint.UntilMS.Time(), up},
		"hint.interval, from 0": {time.UnixMilli(hint.IntervalMS), time.UnixMilli(1001)},
	} {
		if !c.got.Equal(c.want) {
			t.Errorf("%s is %v, want %v", name, c.got, c.want)
		}
	}
	if again := r.Schedule("s", scheduleToPB(bounded)); !again.Equal(bounded) {
		t.Errorf("read back as %+v, was %+v", again, bounded)
	}
	r = Reader{}
	r.Schedule("s", &fermatav1.Schedule{Exclusions: &fermatav1.Exclusions{
		Periods: []*fermatav1.Exclusions_Period{{StartTime: timestamppb.New(given.Add(1)), EndTime: pb}},
	}})
	if r.Err() == nil {
		t.Error("a period that ends before it begins, by less than a millisecond, was read")
	}
}
