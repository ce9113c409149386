package registry

import (
	"bytes"

	"github.com/fermata-io/fermata/internal/job"
)

// Sealer encrypts payloads for the time that they are stored.
type Sealer interface {
	// Seal seals a payload for one job, and tells the id of its key.
	Seal(k job.Key, payload []byte) (sealed []byte, id string)
	Open(k job.Key, id string, sealed []byte) ([]byte, error)
	// Current is the id of the key that seals.
	Current() string
}

// seal seals the payload of a definition that is about to be stored, unless it is.
func (r *Registry) seal(d *job.Definition) {
	if r.o.Sealer != nil && d.PayloadKey == "" && len(d.Payload) > 0 {
		d.Payload, d.PayloadKey = r.o.Sealer.Seal(d.Key, d.Payload)
	}
}

// plain is the payload of a definition as it was given.
func (r *Registry) plain(d *job.Definition) ([]byte, bool) {
	if d.PayloadKey == "" {
		return d.Payload, true
	}
	if r.o.Sealer == nil {
		return nil, false
	}
	payload, err := r.o.Sealer.Open(d.Key, d.PayloadKey, d.Payload)
	return payload, err == nil
}

// align gives a definition the payload of the one that is stored, if it is the same:
// sealed twice it would look like another one.
func (r *Registry) align(d *job.Definition, stored *job.Definition) {
	if d.PayloadKey == stored.PayloadKey && (d.PayloadKey == "" || bytes.Equal(d.Payload, stored.Payload)) {
		return
	}
	mine, ok := r.plain(d)
	theirs, ok2 := r.plain(stored)
	if ok && ok2 && bytes.Equal(mine, theirs) {
		d.Payload, d.PayloadKey = stored.Payload, stored.PayloadKey
	}
}

// opens refuses a sealed payload from outside that could never be handed to a worker.
func (r *Registry) opens(d *job.Definition) error {
	if _, ok := r.plain(d); !ok {
		return job.Invalid("job.payload", "is sealed for another job, or with key %q, which this node does not have", job.Clip(d.PayloadKey, 40))
	}
	return nil
}

// reseal opens the payload of a definition, so that it is sealed with the present key;
// done when it is already.
func (r *Registry) reseal(d *job.Definition) (done bool, err error) {
	if r.o.Sealer == nil {
		return false, job.Invalid("update_mask", "payload_key_id: this node has no payload keys: see --payload-key-file of the scheduler")
	}
	if len(d.Payload) == 0 || d.PayloadKey == r.o.Sealer.Current() {
		return true, nil
	}
	if err := r.opens(d); err != nil {
		return false, err
	}
	d.Payload, _ = r.plain(d)
	d.PayloadKey = ""
	return false, nil
}
