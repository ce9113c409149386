package rpc

import (
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestParentsOfRuns reads parents of one job and of all.
func TestParentsOfRuns(t *testing.T) {
	for parent, want := range map[string]struct {
		namespace string
		all, bad  bool
	}{
		"namespaces/a/jobs/x":   {"a", false, false},
		"namespaces/a/jobs/-":   {"a", true, false},
		"namespaces/-/jobs/-":   {"-", true, false},
		"namespaces/-/jobs/x":   {bad: true},
		"namespaces/a b/jobs/-": {bad: true},
		"namespaces//jobs/-":    {bad: true},
		"jobs/-":                {bad: true},
		"namespaces/a/jobs/-/":  {bad: true},
	} {
		namespace, all, err := convert.ParseJobsParent("parent", parent)
		if (err != nil) != want.bad || err == nil && (namespace != want.namespace || all != want.all) {
			t.Errorf("%s: %q, %v, %v", parent, namespace, all, err)
		}
	}
}

// TestFieldsOfOneJobsRuns: no field is taken that has no effect.
func TestFieldsOfOneJobsRuns(t *testing.T) {
	now := timestamppb.Now()
	for name, q := range map[string]*fermatav1.ListRunsRequest{
		"start_time": {StartTime: now}, "end_time": {EndTime: now}, "queue": {Queue: "q"}, "filter": {Filter: "x"},
		"outcomes":  {Outcomes: []fermatav1.Outcome{fermatav1.Outcome_OUTCOME_DEAD}},
		"page_size": {PageSize: 1}, "page_token": {PageToken: "x"},
	} {
		if requireNoRunFilters(q) == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if err := requireNoRunFilters(&fermatav1.ListRunsRequest{Parent: "namespaces/a/jobs/x"}); err != nil {
		t.Error(err)
	}
}

// TestWindowsOfRuns rounds bounds up to milliseconds, and refuses unknown outcomes and wrong times.
func TestWindowsOfRuns(t *testing.T) {
	q, err := convert.EndedRunsQueryFromPB(&fermatav1.ListRunsRequest{
		StartTime: &timestamppb.Timestamp{Seconds: 5, Nanos: 1}, EndTime: &timestamppb.Timestamp{Seconds: -5},
		Outcomes: []fermatav1.Outcome{fermatav1.Outcome_OUTCOME_TIMED_OUT},
	})
	if err != nil || q.StartMS != 5001 || q.EndMS != 1 || len(q.Outcomes) != 1 || q.Outcomes[0] != job.OutcomeTimedOut {
		t.Errorf("%+v, %v", q, err)
	}
	for name, bad := range map[string]*fermatav1.ListRunsRequest{
		"no outcome":    {Outcomes: []fermatav1.Outcome{0}},
		"an outcome":    {Outcomes: []fermatav1.Outcome{77}},
		"many outcomes": {Outcomes: make([]fermatav1.Outcome, 17)},
		"a start":       {StartTime: &timestamppb.Timestamp{Nanos: -1}},
		"an end":        {EndTime: &timestamppb.Timestamp{Seconds: 1 << 60}},
	} {
		if _, err := convert.EndedRunsQueryFromPB(bad); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
