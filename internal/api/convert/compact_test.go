package convert

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// complete returns the job of a compact response with what the response left out.
func complete(j *fermatav1.Job, number int32, shared []*fermatav1.Job, sent *fermatav1.Job) *fermatav1.Job {
	if number == 0 {
		return j
	}
	proto.Merge(j, shared[number-1])
	j.Handler = sent.GetHandler()
	if !j.GetPayloadSealed() {
		j.Payload = sent.GetPayload()
	}
	return j
}

// TestCompactJobsAreComplete: the compact form, with the shared fields and the request, has all that the other form has.
func TestCompactJobsAreComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w CompactWriter
		kinds := []job.Definition{drawDefinition(t), drawDefinition(t)}
		for range 12 {
			d := rapid.SampledFrom(kinds).Draw(t, "kind")
			d.ID = rapid.StringMatching(`[a-z]{1,9}`).Draw(t, "id")
			if rapid.IntRange(0, 5).Draw(t, "is another") == 0 {
				d = drawDefinition(t)
			}
			d.Generation, d.Revision, d.AnchorMS, d.CreatedMS, d.UpdatedMS = 1, 1, 1_000, 1_000, 1_000
			sent := DefinitionToPB(&d)
			switch rapid.IntRange(0, 4).Draw(t, "sent") {
			case 0:
				sent.Handler = "another"
			case 1:
				sent.Payload = append(sent.Payload, 1)
			case 2:
				d.PayloadKey, d.Payload = "k1", make([]byte, 100)
			}
			r := job.Record{Definition: &d, State: job.State{Region: job.RegionDue, Nominal: 2_000, Due: 2_000, Generation: 1, Revision: 1}}
			want := RecordToPB(r, 0)
			j, number := w.WriteJob(r, sent, 0)
			if got := complete(j, number, w.Shared, sent); !proto.Equal(got, want) {
				t.Fatalf("shared %d: got\n%v\nwant\n%v", number, got, want)
			}
		}
		if len(w.Shared) > maxSharedMessages {
			t.Fatalf("%d messages of shared fields", len(w.Shared))
		}
	})
}

// TestCompactJobsShareTheirFields: jobs that differ in their ids and payloads have one message of shared fields, and
// their own messages are small.
func TestCompactJobsShareTheirFields(t *testing.T) {
	var w CompactWriter
	for _, id := range []string{"a", "b", "c"} {
		d := stored()
		d.ID, d.Payload = id, []byte("payload of "+id)
		r := job.Record{Definition: &d}
		sent := DefinitionToPB(&d)
		j, number := w.WriteJob(r, sent, 0)
		if full := proto.Size(RecordToPB(r, 0)); number != 1 || proto.Size(j) > full/2 {
			t.Errorf("job %s: shared %d, %d of %d bytes", id, number, proto.Size(j), full)
		}
	}
	if len(w.Shared) != 1 {
		t.Errorf("%d messages of shared fields", len(w.Shared))
	}
}
