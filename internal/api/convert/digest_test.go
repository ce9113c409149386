package convert

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
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

// TestDigestHasAllSettableFields: each field that clients set changes the digest, and each
// field of a policy does, but for the sources of its values.
func TestDigestHasAllSettableFields(t *testing.T) {
	sources := map[string]string{"preset": "operator"}
	base := func() *fermatav1.Job {
		return &fermatav1.Job{Name: "namespaces/n/jobs/j",
			RetryPolicy:   &fermatav1.RetryPolicy{Sources: sources},
			BackoffPolicy: &fermatav1.BackoffPolicy{Sources: sources}}
	}
	plain := string(DefinitionDigest(base()))
	changes := func(what string, of func(*fermatav1.Job) protoreflect.Message, field protoreflect.FieldDescriptor) {
		p := base()
		m := of(p)
		setSomething(m, field)
		if changed := string(DefinitionDigest(p)) != plain; changed == (field.Name() == "sources") {
			t.Errorf("%s %s changes the digest: %v", what, field.Name(), changed)
		}
	}
	whole := func(p *fermatav1.Job) protoreflect.Message { return p.ProtoReflect() }
	fields := whole(base()).Descriptor().Fields()
	for _, name := range append([]string{"name", "payload_key_id", "payload_size"}, SettableFields...) {
		changes("job", whole, fields.ByName(protoreflect.Name(name)))
	}
	for _, name := range []protoreflect.Name{"retry_policy", "backoff_policy"} {
		policy := func(p *fermatav1.Job) protoreflect.Message {
			return p.ProtoReflect().Get(fields.ByName(name)).Message()
		}
		for inner := range policy(base()).Descriptor().Fields().Len() {
			changes(string(name), policy, policy(base()).Descriptor().Fields().Get(inner))
		}
	}
}

// setSomething sets a field to a value other than its default.
func setSomething(m protoreflect.Message, field protoreflect.FieldDescriptor) {
	switch {
	case field.IsMap():
		m.Mutable(field).Map().Set(protoreflect.ValueOf("k").MapKey(), protoreflect.ValueOf("v"))
	case field.IsList():
		m.Mutable(field).List().AppendMutable()
	case field.Message() != nil:
		m.Set(field, m.NewField(field)) // set, though empty
		m.Mutable(field).Message().SetUnknown([]byte{0xf8, 0x7f, 1})
	case field.Kind() == protoreflect.EnumKind:
		m.Set(field, protoreflect.ValueOfEnum(1))
	default:
		values := map[protoreflect.Kind]any{
			protoreflect.StringKind: "x", protoreflect.BytesKind: []byte("x"), protoreflect.BoolKind: true,
			protoreflect.Int32Kind: int32(7), protoreflect.Int64Kind: int64(7), protoreflect.DoubleKind: 7.5,
		}
		m.Set(field, protoreflect.ValueOf(values[field.Kind()]))
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
