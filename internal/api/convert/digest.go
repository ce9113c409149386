package convert

import (
	"crypto/sha256"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

var canonical = proto.MarshalOptions{Deterministic: true}

// MessageDigest is the SHA-256 of a message's canonical bytes.
func MessageDigest(m proto.Message) []byte {
	b, err := canonical.Marshal(m)
	if err != nil {
		return nil // text that is no UTF-8: there is nothing to compare with
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// isSettable has the numbers of [SettableFields].
var isSettable = func() map[protoreflect.FieldNumber]bool {
	numbers, fields := map[protoreflect.FieldNumber]bool{}, (&fermatav1.Job{}).ProtoReflect().Descriptor().Fields()
	for _, name := range SettableFields {
		numbers[fields.ByName(protoreflect.Name(name)).Number()] = true
	}
	return numbers
}()

// DefinitionDigest is the digest of what clients set of a job, and its name.
func DefinitionDigest(p *fermatav1.Job) []byte {
	if p == nil {
		return nil
	}
	d := &fermatav1.Job{Name: p.GetName(), PayloadKeyId: p.GetPayloadKeyId(), PayloadSize: p.GetPayloadSize()}
	to := d.ProtoReflect()
	// What is set is shared with p, not copied: it is only read.
	p.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if isSettable[field.Number()] {
			to.Set(field, value)
		}
		return true
	})
	if d.PayloadKeyId != "" {
		d.Payload = nil // answers do not have it
	}
	d.RetryPolicy, d.BackoffPolicy = withoutSources(d.RetryPolicy), withoutSources(d.BackoffPolicy)
	return MessageDigest(d)
}

// withoutSources returns a policy without the sources of its values. It shares all else with the policy that it was
// given.
func withoutSources[P interface {
	proto.Message
	GetSources() map[string]string
}](p P) P {
	if len(p.GetSources()) == 0 {
		return p
	}
	from := p.ProtoReflect()
	to := from.New()
	from.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Name() != "sources" {
			to.Set(field, value)
		}
		return true
	})
	to.SetUnknown(from.GetUnknown())
	return to.Interface().(P)
}

// StatusDigest is the digest of a job's state.
func StatusDigest(p *fermatav1.Job) []byte {
	if p.GetStatus() == nil {
		return nil
	}
	return MessageDigest(p.GetStatus())
}
