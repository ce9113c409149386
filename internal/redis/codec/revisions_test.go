package codec

import (
	"reflect"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// TestLastEditOfAnotherRevisionDoesNotCount: a node that does not know it carries it through an edit.
func TestLastEditOfAnotherRevisionDoesNotCount(t *testing.T) {
	d := job.Definition{Key: job.Key{Namespace: "ns", ID: "job"}, Queue: "q", Handler: "h", Revision: 3}
	d.LastEdit = job.Edit{Identity: "ann", Method: "UpdateJob"}
	for _, f := range allEncodings {
		text, err := f.EncodeDefinition(&d)
		if err != nil {
			t.Fatal(err)
		}
		fast := new(DefinitionDecoder)
		fast.input = text
		if got := fast.decodeFields(d.Key); got == nil || got.LastEdit != d.LastEdit {
			t.Errorf("encoding %d: decoded field by field: %+v", f, got)
		}
		for revision, want := range map[uint32]job.Edit{3: d.LastEdit, 4: {}} {
			edited := d
			edited.Revision, edited.LastEdit = revision, job.Edit{}
			edited.Unknown = encodedEdit(t, &d)
			text, err := f.EncodeDefinition(&edited)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := DecodeDefinition("ns/job", string(text)); err != nil || got.LastEdit != want {
				t.Errorf("encoding %d, revision %d: %+v, %v", f, revision, got.LastEdit, err)
			}
		}
	}
}

// encodedEdit is the last edit of a definition, as an older node carries it along.
func encodedEdit(t *testing.T, d *job.Definition) []byte {
	t.Helper()
	text, err := deterministic.Marshal(&storagev1.Definition{LastEdit: encodeEdit(d)})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRevisionsRoundTrip(t *testing.T) {
	var list []*job.Definition
	for i := range 4 {
		d := job.WithDefaults(job.Definition{Key: job.Key{Namespace: "ns", ID: "job"}, Handler: strings.Repeat("h", 1+100*i), Revision: uint32(4 - i),
			CreatedMS: 7, UpdatedMS: 9, CreateRequestID: "c", UpdateRequestIDs: job.RequestIDs{"u"}, LastEdit: job.Edit{Identity: "ann"}})
		list = append(list, &d)
	}
	text, err := EncodingCompact.EncodeRevisions(list)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRevisions("ns/job", string(text))
	if err != nil || len(got) != len(list) {
		t.Fatalf("%d revisions: %v", len(got), err)
	}
	for i, d := range list {
		if want := d.AsRevision(); !reflect.DeepEqual(got[i], want) {
			t.Errorf("%+v, want %+v", got[i], want)
		}
	}
	if got, err := DecodeRevisions("ns/job", string(text[:len(text)-1])); err == nil || len(got) != 3 {
		t.Errorf("%d of a corrupt text: %v", len(got), err)
	}
	list[1].Payload = make([]byte, job.MaxRevisionBytes)
	if text, err = EncodingCompact.EncodeRevisions(list); err != nil || len(text) > job.MaxRevisionBytes {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	if got, err := DecodeRevisions("ns/job", string(text)); err != nil || len(got) != 1 {
		t.Errorf("%d revisions fit: %v", len(got), err)
	}
}
