// Package attest writes and signs how a release was built: an in-toto statement with SLSA provenance, in Sigstore's
// bundles, which cosign and other tools verify.
//
// A statement has the same bytes for the same build: it contains neither a time nor a machine. Signatures differ, and
// are stored beside the signed file.
package attest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	source = "https://github.com/fermata-io/fermata"
	// BuildType is the page that defines the parameters of a build.
	BuildType = source + "/blob/main/docs/release.md#making-one"
	// Predicate is the type of the statement.
	Predicate = "https://slsa.dev/provenance/v1"
	// statementType is that of DSSE envelopes with an in-toto statement.
	statementType = "application/vnd.in-toto+json"
)

// Build is how the files of a release came to be.
type Build struct {
	Version  string
	Revision string // commit
	Builder  string // URI of who builds
	Image    string // name of the image, without a tag
	Digest   string // its digest, sha256:...; empty if there is none

	Platforms []string
	Go        string            // release of Go that compiled
	Inputs    map[string][]byte // files that pin what is compiled, by name: go.mod, go.sum
	Epoch     int64             // age of the files, in seconds since 1970
}

// Provenance is the statement that files, by name with their SHA-256 in hex, and the image were built so.
func Provenance(b Build, files map[string]string) ([]byte, error) {
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: Predicate}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		statement.Subject = append(statement.Subject, describe(name, files[name]))
	}
	if hash, ok := bytes.CutPrefix([]byte(b.Digest), []byte("sha256:")); ok {
		statement.Subject = append(statement.Subject, describe(b.Image, string(hash)))
	}
	predicate, err := b.predicate()
	if err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	text, err := protojson.Marshal(predicate)
	if err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	statement.Predicate = &structpb.Struct{}
	if err := protojson.Unmarshal(text, statement.Predicate); err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	if err := statement.Validate(); err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	return stable(statement)
}

func (b Build) predicate() (*slsa.Provenance, error) {
	platforms := make([]any, len(b.Platforms))
	for i, p := range b.Platforms {
		platforms[i] = p
	}
	external, err := structpb.NewStruct(map[string]any{"version": b.Version, "platforms": platforms, "image": b.Image})
	if err != nil {
		return nil, err
	}
	internal, err := structpb.NewStruct(map[string]any{"go": b.Go, "epoch": b.Epoch})
	if err != nil {
		return nil, err
	}
	origin := &intoto.ResourceDescriptor{Name: "fermata", Uri: "git+" + source}
	if b.Revision != "" {
		origin.Digest = map[string]string{"gitCommit": b.Revision}
	}
	inputs := []*intoto.ResourceDescriptor{origin}
	for _, name := range slices.Sorted(maps.Keys(b.Inputs)) {
		inputs = append(inputs, describe(name, hexSHA256(b.Inputs[name])))
	}
	p := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType: BuildType, ExternalParameters: external, InternalParameters: internal,
			ResolvedDependencies: inputs,
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: b.Builder}},
	}
	return p, p.Validate()
}

// describe is a file or an image, by its name and its SHA-256 in hex.
func describe(name, hash string) *intoto.ResourceDescriptor {
	return &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": hash}}
}

// stable is a message as JSON of the same bytes each time, which protojson alone does not promise.
func stable(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	out, err := json.MarshalIndent(tree, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	return append(out, '\n'), nil
}
