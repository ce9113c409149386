package seal

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/fermata-io/fermata/internal/job"
)

// ErrKey says that the ring lacks the key of a payload.
var ErrKey = errors.New("payload key is not in the ring")

// ErrTampered says that a payload is not what was sealed for this job.
var ErrTampered = errors.New("sealed payload was changed, or belongs to another job")

const (
	version   = 1
	nonceSize = 12
	tagSize   = 16
)

// The model counts a payload without what sealing adds.
var _ [job.SealOverhead]byte = [1 + nonceSize + tagSize]byte{}

// Seal seals a payload for one job with the ring's first key.
func (r *Ring) Seal(k job.Key, payload []byte) (sealed []byte, id string) {
	ring := r.keys.Load()
	id = ring.first
	out := make([]byte, 1+nonceSize, 1+nonceSize+len(payload)+tagSize)
	out[0] = version
	rand.Read(out[1:]) // never fails
	return ring.byID[id].Seal(out, out[1:], payload, binding(id, k)), id
}

// Open undoes Seal, or fails with ErrKey or ErrTampered.
func (r *Ring) Open(k job.Key, id string, sealed []byte) ([]byte, error) {
	aead := r.keys.Load().byID[id]
	switch {
	case aead == nil:
		return nil, fmt.Errorf("%w: %.32q", ErrKey, id)
	case len(sealed) < job.SealOverhead || sealed[0] != version:
		return nil, ErrTampered
	}
	plain, err := aead.Open(nil, sealed[1:1+nonceSize], sealed[1+nonceSize:], binding(id, k))
	if err != nil {
		return nil, ErrTampered
	}
	return plain, nil
}

// binding is what is authenticated with a payload. Its parts cannot hold a NUL.
func binding(id string, k job.Key) []byte {
	return []byte("fermata payload 1\x00" + id + "\x00" + k.Namespace + "\x00" + k.ID)
}
