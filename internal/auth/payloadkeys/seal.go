package payloadkeys

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
)

// ErrKey means that the key of a payload is not in the ring.
var ErrKey = errors.New("payload key is not in the ring")

// ErrTampered means that a payload, or the data that is bound to it, was changed after encryption.
var ErrTampered = errors.New("sealed payload, or what it is bound to, was changed")

// ErrUnsealed means that a payload is unencrypted where encryption is required.
var ErrUnsealed = errors.New("payload is not sealed")

// ErrVersion1 means that a payload is encrypted by version 1 where version 2 is required.
var ErrVersion1 = errors.New("payload is sealed by version 1, which binds neither queue nor handler")

const (
	nonceSize = 12
	tagSize   = 16
)

// Package job counts the size of a payload without this overhead.
var _ [job.SealOverhead]byte = [1 + nonceSize + tagSize]byte{}

// Encrypt encrypts a payload for a definition with the ring's first key, by the ring's version.
func (r *Ring) Encrypt(d *job.Definition, payload []byte) (sealed []byte, id string) {
	ring, version := r.keys.Content(), byte(r.Version())
	id = ring.sealingID
	out := make([]byte, 1+nonceSize, 1+nonceSize+len(payload)+tagSize)
	out[0] = version
	rand.Read(out[1:]) // never fails
	return ring.byID[id].Seal(out, out[1:], payload, additionalData(version, id, d)), id
}

// Decrypt decrypts the payload of a stored definition. It fails with ErrKey, ErrTampered or, if the ring is strict,
// ErrUnsealed or ErrVersion1.
func (r *Ring) Decrypt(d *job.Definition) ([]byte, error) {
	if d.PayloadKey == "" {
		if r.strict {
			return nil, ErrUnsealed
		}
		return d.Payload, nil
	}
	aead, version := r.keys.Content().byID[d.PayloadKey], d.SealVersion()
	switch {
	case aead == nil:
		return nil, fmt.Errorf("%w: %.32q", ErrKey, d.PayloadKey)
	case len(d.Payload) < job.SealOverhead || version != job.SealOfJob && version != job.SealOfWork:
		return nil, ErrTampered
	case r.strict && version == job.SealOfJob:
		return nil, ErrVersion1
	}
	plain, err := aead.Open(nil, d.Payload[1:1+nonceSize], d.Payload[1+nonceSize:],
		additionalData(byte(version), d.PayloadKey, d))
	if err != nil {
		return nil, ErrTampered
	}
	return plain, nil
}

// additionalData is the data that is authenticated with a payload. Parts that end with a NUL cannot contain one.
func additionalData(version byte, id string, d *job.Definition) []byte {
	if version == job.SealOfJob {
		return []byte("fermata payload 1\x00" + id + "\x00" + d.Namespace + "\x00" + d.ID)
	}
	return d.AppendBound(append(make([]byte, 0, 256), "fermata payload 2\x00"+id+"\x00"...))
}
