package attest

import (
	"bytes"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"

	intoto "github.com/in-toto/attestation/go/v1"
	bundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"google.golang.org/protobuf/encoding/protojson"
)

// Verifier knows the public key of who signs releases.
type Verifier struct{ key signature.Verifier }

// NewVerifier reads a public key from a PEM file.
func NewVerifier(file string) (*Verifier, error) {
	key, err := signature.LoadVerifierFromPEMFile(file, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("attest: key %s: %w", file, err)
	}
	return &Verifier{key}, nil
}

// File fails unless the bundle is a signature of the file by the key.
func (v *Verifier) File(file, bundled []byte) error {
	b, err := parse(bundled)
	if err != nil {
		return err
	}
	m := b.GetMessageSignature()
	if m == nil {
		return errors.New("attest: the bundle has no signature of a file")
	}
	if err := v.key.VerifySignature(bytes.NewReader(m.Signature), bytes.NewReader(file)); err != nil {
		return fmt.Errorf("attest: %w", err)
	}
	return nil
}

// Statement returns the statement that is signed in a bundle by the key.
func (v *Verifier) Statement(bundled []byte) ([]byte, *intoto.Statement, error) {
	b, err := parse(bundled)
	if err != nil {
		return nil, nil, err
	}
	e := b.GetDsseEnvelope()
	if e == nil || e.PayloadType != statementType {
		return nil, nil, errors.New("attest: the bundle has no signed statement")
	}
	text, err := json.Marshal(map[string]any{
		"payload": e.Payload, "payloadType": e.PayloadType, "signatures": e.Signatures,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("attest: %w", err)
	}
	if err := dsse.WrapVerifier(v.key).VerifySignature(bytes.NewReader(text), nil); err != nil {
		return nil, nil, fmt.Errorf("attest: %w", err)
	}
	s, err := ParseStatement(e.Payload)
	return e.Payload, s, err
}

// ParseStatement reads a statement with provenance.
func ParseStatement(text []byte) (*intoto.Statement, error) {
	s := &intoto.Statement{}
	if err := protojson.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	if s.PredicateType != Predicate {
		return nil, fmt.Errorf("attest: the statement says %s, and not %s", s.PredicateType, Predicate)
	}
	return s, nil
}

func parse(bundled []byte) (*bundle.Bundle, error) {
	b := &bundle.Bundle{}
	if err := protojson.Unmarshal(bundled, b); err != nil {
		return nil, fmt.Errorf("attest: the bundle cannot be read: %w", err)
	}
	if b.MediaType != bundleType {
		return nil, fmt.Errorf("attest: the bundle is a %q, and not %s", b.MediaType, bundleType)
	}
	return b, nil
}
