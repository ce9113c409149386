package main

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// outputOnly are fields of Job that nobody sets.
var outputOnly = []string{"warnings", "etag", "generation", "create_time", "update_time", "status", "payload_sealed", "payload_key_id", "payload_size"}

// TestChartKnowsTheFieldsOfJobs: the chart's schema refuses a field of a job that it does
// not know. A field that is new in the API goes into deploy/helm/fermata/values.schema.json
// as well, or is one that nobody sets.
func TestChartKnowsTheFieldsOfJobs(t *testing.T) {
	text, err := os.ReadFile("../../deploy/helm/fermata/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Definitions struct {
			Job, Queue struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	want := []string{"id", "paused", "http", "exec", "payload_text"}
	fields := (&fermatav1.Job{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if name := string(fields.Get(i).Name()); !slices.Contains(outputOnly, name) {
			want = append(want, name)
		}
	}
	got := slices.Sorted(maps.Keys(schema.Definitions.Job.Properties))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the schema knows the fields\n%v of a job, which are\n%v", got, want)
	}
	limits := (&fermatav1.QueueSettings{}).ProtoReflect().Descriptor().Fields()
	for i := range limits.Len() {
		if name := string(limits.Get(i).Name()); name != "name" && name != "pause_until_time" && schema.Definitions.Queue.Properties[name] == nil {
			t.Errorf("the schema does not know the limit %s", name)
		}
	}
}
