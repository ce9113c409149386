package convert

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestDigests: an edit shows in the digests, what only the state changes does not, and
// equal definitions have equal ones.
func TestDigests(t *testing.T) {
	present := stored()
	same := RecordToPB(job.Record{Definition: &present}, 0)
	same.Etag, same.Generation = "other", 9
	if string(DefinitionDigest(DefinitionToPB(&present))) != string(DefinitionDigest(same)) {
		t.Error("equal definitions have different digests")
	}
	edited := proto.CloneOf(same)
	edited.Queue = "other"
	if string(DefinitionDigest(edited)) == string(DefinitionDigest(same)) {
		t.Error("an edit does not show")
	}
	paused := proto.CloneOf(same)
	paused.Status.PauseNote = "x"
	if string(DefinitionDigest(paused)) != string(DefinitionDigest(same)) || string(StatusDigest(paused)) == string(StatusDigest(same)) {
		t.Error("a pause is to show in the state, and there only")
	}
}

// TestDigestTakesFromNobody: the job that is looked at stays as it is, and a payload that
// answers do not have does not count.
func TestDigestTakesFromNobody(t *testing.T) {
	present := stored()
	p := DefinitionToPB(&present)
	p.PayloadKeyId = "k1"
	before := proto.CloneOf(p)
	sum := DefinitionDigest(p)
	if !proto.Equal(p, before) {
		t.Errorf("changed to %v", p)
	}
	p.Payload = []byte("another")
	if string(DefinitionDigest(p)) != string(sum) {
		t.Error("a sealed payload shows")
	}
}

// BenchmarkDigest is what the record of one CreateJob costs beside the call.
func BenchmarkDigest(b *testing.B) {
	present := stored()
	p := DefinitionToPB(&present)
	b.ReportAllocs()
	for b.Loop() {
		DefinitionDigest(p)
	}
}
