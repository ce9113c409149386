package attest

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	bundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	common "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	envelope "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"google.golang.org/protobuf/encoding/protojson"
)

const bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// Signer signs with a private key.
type Signer struct {
	key  signature.Signer
	hint string
}

// NewSigner reads a private key from a PEM file: one of cosign, or PKCS #8 as openssl makes it, ECDSA or Ed25519. An
// encrypted key of cosign is opened by the password.
func NewSigner(file, password string) (*Signer, error) {
	givePassword := func(bool) ([]byte, error) { return []byte(password), nil }
	key, err := signature.LoadSignerFromPEMFile(file, crypto.SHA256, givePassword)
	if err != nil {
		return nil, fmt.Errorf("attest: key %s: %w", file, err)
	}
	public, err := key.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("attest: key %s: %w", file, err)
	}
	der, err := cryptoutils.MarshalPublicKeyToDER(public)
	if err != nil {
		return nil, fmt.Errorf("attest: key %s: %w", file, err)
	}
	sum := sha256.Sum256(der)
	return &Signer{key: key, hint: base64.StdEncoding.EncodeToString(sum[:])}, nil
}

// SignFile returns the signature of a file alone, in base64, and as a bundle.
func (s *Signer) SignFile(file []byte) (plain, bundled []byte, err error) {
	raw, err := s.key.SignMessage(bytes.NewReader(file))
	if err != nil {
		return nil, nil, fmt.Errorf("attest: %w", err)
	}
	sum := sha256.Sum256(file)
	b := s.bundle()
	b.Content = &bundle.Bundle_MessageSignature{MessageSignature: &common.MessageSignature{
		MessageDigest: &common.HashOutput{Algorithm: common.HashAlgorithm_SHA2_256, Digest: sum[:]}, Signature: raw,
	}}
	bundled, err = stable(b)
	return []byte(base64.StdEncoding.EncodeToString(raw) + "\n"), bundled, err
}

// SignStatement returns a statement, signed, as a bundle.
func (s *Signer) SignStatement(statement []byte) ([]byte, error) {
	text, err := dsse.WrapSigner(s.key, statementType).SignMessage(bytes.NewReader(statement))
	if err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	e := &envelope.Envelope{}
	if err := protojson.Unmarshal(text, e); err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	b := s.bundle()
	b.Content = &bundle.Bundle_DsseEnvelope{DsseEnvelope: e}
	return stable(b)
}

func (s *Signer) bundle() *bundle.Bundle {
	return &bundle.Bundle{MediaType: bundleType, VerificationMaterial: &bundle.VerificationMaterial{
		Content: &bundle.VerificationMaterial_PublicKey{PublicKey: &common.PublicKeyIdentifier{Hint: s.hint}},
	}}
}

func hexSHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
