package registry

import (
	"bytes"
	"errors"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Sealer encrypts payloads for the time that they are stored.
type Sealer interface {
	// Seal seals a payload for a definition, and returns the id of its key.
	Seal(d *job.Definition, payload []byte) (sealed []byte, id string)
	// Open answers the payload of a stored definition, if it may be handed out. Its errors
	// are for callers to see.
	Open(d *job.Definition) ([]byte, error)
	// Current is the id of the key that seals, and Version the version by which.
	Current() string
	Version() int
	// Strict reports whether Open refuses what is not sealed, or not by the latest version.
	Strict() bool
}

var errNoKeys = errors.New("this node has no payload keys")

// seal gives a definition a payload, sealed if there are keys. By version 1 an empty one is
// left as it is.
func (r *Registry) seal(d *job.Definition, payload []byte) {
	d.Payload, d.PayloadKey = payload, ""
	if s := r.o.Sealer; s != nil && (len(payload) > 0 || s.Version() != job.SealOfJob) {
		d.Payload, d.PayloadKey = s.Seal(d, payload)
	}
}

// strict reports whether payloads have to be sealed.
func (r *Registry) strict() bool { return r.o.Sealer != nil && r.o.Sealer.Strict() }

// open answers the payload of a stored definition, if it may be handed out.
func (r *Registry) open(d *job.Definition) ([]byte, error) {
	switch {
	case r.o.Sealer != nil:
		return r.o.Sealer.Open(d)
	case d.PayloadKey != "":
		return nil, errNoKeys
	}
	return d.Payload, nil
}

// given is the payload of a definition that comes from outside.
func (r *Registry) given(d *job.Definition) ([]byte, error) {
	if d.PayloadKey == "" {
		return d.Payload, nil
	}
	return r.open(d)
}

// align gives a definition the payload of the one that is stored, if it is the same:
// sealed twice it would look like another one. It may be bound to what differs: see keep.
func (r *Registry) align(d *job.Definition, stored *job.Definition) {
	if d.PayloadKey != "" && d.PayloadKey == stored.PayloadKey && bytes.Equal(d.Payload, stored.Payload) {
		return
	}
	mine, err := r.given(d)
	theirs, err2 := r.open(stored)
	if err == nil && err2 == nil && bytes.Equal(mine, theirs) {
		d.Payload, d.PayloadKey = stored.Payload, stored.PayloadKey
	}
}

// keep readies a definition for being stored that has the payload of the one that it
// replaces: it is sealed anew where it has to be. What would not be handed out is not sealed
// anew by that, and a strict node refuses to store it again.
func (r *Registry) keep(d, stored *job.Definition) error {
	bound := d.SealVersion() != job.SealOfWork || d.SameBound(stored)
	if r.o.Sealer == nil && bound {
		return nil
	}
	payload, err := r.open(stored)
	switch {
	case err != nil && bound && !r.strict():
		return nil // it could not be opened before either
	case err != nil:
		return job.Invalid("job.payload", "cannot be kept: %v; give the payload itself", err)
	case !bound || d.SealVersion() < r.o.Sealer.Version():
		r.seal(d, payload)
	}
	return nil
}

// reseal seals the payload of a definition with the present key; done when it is already. It
// fails if the payload would not be handed out.
func (r *Registry) reseal(d *job.Definition) (done bool, err error) {
	s := r.o.Sealer
	if s == nil {
		return false, job.Invalid("update_mask", "payload_key_id: this node has no payload keys: see --payload-key-file of the scheduler")
	}
	payload, err := r.open(d)
	if err != nil {
		return false, job.Invalid("job.payload", "cannot be sealed anew: %v; give the payload itself", err)
	}
	if d.PayloadKey == s.Current() && d.SealVersion() >= s.Version() {
		return true, nil
	}
	before := len(d.Payload)
	r.seal(d, payload)
	return before == 0 && len(d.Payload) == 0, nil
}
