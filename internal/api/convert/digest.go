package convert

import (
	"crypto/sha256"
	"slices"

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

// DefinitionDigest is the digest of what clients set of a job, and its name.
func DefinitionDigest(p *fermatav1.Job) []byte {
	if p == nil {
		return nil
	}
	d := &fermatav1.Job{Name: p.GetName(), PayloadKeyId: p.GetPayloadKeyId(), PayloadSize: p.GetPayloadSize()}
	to := d.ProtoReflect()
	// What is set is shared with p, not copied: it is only read.
	p.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if slices.Contains(SettableFields, string(field.Name())) {
			to.Set(field, value)
		}
		return true
	})
	if d.PayloadKeyId != "" {
		d.Payload = nil // answers do not have it
	}
	withoutSources(d)
	return MessageDigest(d)
}

// withoutSources takes out of a job where the values of its policies came from. It leaves the
// policies alone that it was given.
func withoutSources(d *fermatav1.Job) {
	if p := d.GetRetryPolicy(); len(p.GetSources()) > 0 {
		d.RetryPolicy = proto.CloneOf(p)
		d.RetryPolicy.Sources = nil
	}
	if p := d.GetBackoffPolicy(); len(p.GetSources()) > 0 {
		d.BackoffPolicy = proto.CloneOf(p)
		d.BackoffPolicy.Sources = nil
	}
}

// StatusDigest is the digest of a job's state.
func StatusDigest(p *fermatav1.Job) []byte {
	if p.GetStatus() == nil {
		return nil
	}
	return MessageDigest(p.GetStatus())
}
