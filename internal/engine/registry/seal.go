package registry

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Sealer encrypts stored payloads.
type Sealer interface {
	// Encrypt seals a payload for a definition, and returns the id of its key.
	Encrypt(d *job.Definition, payload []byte) (sealed []byte, id string)
	// Decrypt returns the payload of a stored definition, if it may be delivered. Its errors may be shown to callers.
	Decrypt(d *job.Definition) ([]byte, error)
	// EncryptingKeyID returns the id of the sealing key, and Version the version of the format.
	EncryptingKeyID() string
	Version() int
	// RequiresVersion2 reports whether Open refuses payloads that are not sealed, or sealed by an older version.
	RequiresVersion2() bool
	// Sign returns a signature of a text, and Verify reports whether one is by a key of this ring.
	Sign(text string) string
	Verify(text, signature string) bool
}

var errNoKeys = errors.New("this node has no payload keys")

// sealPayload sets the payload of a definition, sealed if there are keys. Version 1 leaves an empty payload
// unsealed.
func (r *Registry) sealPayload(d *job.Definition, payload []byte) {
	d.Payload, d.PayloadKey = payload, ""
	if s := r.o.Sealer; s != nil && (len(payload) > 0 || s.Version() != job.SealOfJob) {
		d.Payload, d.PayloadKey = s.Encrypt(d, payload)
	}
}

// requiresSealing reports whether payloads have to be sealed.
func (r *Registry) requiresSealing() bool { return r.o.Sealer != nil && r.o.Sealer.RequiresVersion2() }

// openPayload returns the payload of a stored definition, if it may be delivered.
func (r *Registry) openPayload(d *job.Definition) ([]byte, error) {
	switch {
	case r.o.Sealer != nil:
		return r.o.Sealer.Decrypt(d)
	case d.PayloadKey != "":
		return nil, errNoKeys
	}
	return d.Payload, nil
}

// authenticateDefinition opens the payload of a stored definition, so that another payload can be sealed with the
// queue and the other bound fields of that definition: whoever can write to Redis may have changed them. A payload that
// is not sealed authenticates nothing; only a strict node refuses it. A node without keys seals nothing.
func (r *Registry) authenticateDefinition(stored *job.Definition) error {
	if r.o.Sealer == nil {
		return nil
	}
	if _, err := r.openPayload(stored); err != nil {
		return r.unopenedPayloadError(stored.Key, err)
	}
	return nil
}

// unopenedPayloadError refuses to seal, or to store again, what the stored payload does not authenticate. It does not
// advise to give the payload alone: a node would then complete it with fields that may be forged.
func (r *Registry) unopenedPayloadError(key job.Key, cause error) error {
	advice := "if it was changed in Redis, so may be the queue, handler, timeout, labels and max_attempts of the job: " +
		"give the whole definition, with its payload, from a source that you trust"
	if r.o.Sealer == nil {
		advice = "ask a node that has --payload-key-file"
	}
	return &job.PreconditionError{Key: key, Reason: job.ReasonPayloadUnreadable,
		Text: fmt.Sprintf("its stored payload cannot be opened: %v; %s", cause, advice)}
}

// openGivenPayload returns the payload of a definition that a caller sent.
func (r *Registry) openGivenPayload(d *job.Definition) ([]byte, error) {
	if d.PayloadKey == "" {
		return d.Payload, nil
	}
	return r.openPayload(d)
}

// reuseStoredPayload gives a definition the sealed payload of the stored one, if both open to the same
// payload: sealed again, it would look different. The sealed payload may be bound to fields that differ: see
// keepStoredPayload.
func (r *Registry) reuseStoredPayload(d *job.Definition, stored *job.Definition) {
	if d.PayloadKey != "" && d.PayloadKey == stored.PayloadKey && bytes.Equal(d.Payload, stored.Payload) {
		return
	}
	mine, err := r.openGivenPayload(d)
	theirs, err2 := r.openPayload(stored)
	if err == nil && err2 == nil && bytes.Equal(mine, theirs) {
		d.Payload, d.PayloadKey = stored.Payload, stored.PayloadKey
	}
}

// keepStoredPayload prepares a definition that keeps the payload of the stored one: it is sealed again if
// necessary. A payload that may not be delivered is not sealed again, and a strict node refuses to store it
// again.
func (r *Registry) keepStoredPayload(d, stored *job.Definition) error {
	bound := d.SealVersion() != job.SealOfWork || d.EqualBoundData(stored)
	if r.o.Sealer == nil && bound {
		return nil
	}
	payload, err := r.openPayload(stored)
	switch {
	case err != nil && bound && !r.requiresSealing():
		return nil // it could not be opened before either
	case err != nil:
		return r.unopenedPayloadError(stored.Key, err)
	case !bound || d.SealVersion() < r.o.Sealer.Version():
		r.sealPayload(d, payload)
	}
	return nil
}

// resealPayload seals the payload of a definition with the current key. done: it is sealed with that key
// already. It fails if the payload may not be delivered.
func (r *Registry) resealPayload(d *job.Definition) (done bool, err error) {
	s := r.o.Sealer
	if s == nil {
		return false, job.Invalid("update_mask",
			"payload_key_id: this node has no payload keys: see --payload-key-file of the scheduler")
	}
	payload, err := r.openPayload(d)
	if err != nil {
		return false, r.unopenedPayloadError(d.Key, err)
	}
	if d.PayloadKey == s.EncryptingKeyID() && d.SealVersion() >= s.Version() {
		return true, nil
	}
	before := len(d.Payload)
	r.sealPayload(d, payload)
	return before == 0 && len(d.Payload) == 0, nil
}
