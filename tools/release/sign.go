package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	intoto "github.com/in-toto/attestation/go/v1"

	"github.com/fermata-io/fermata/tools/release/attest"
)

const (
	sumsFile    = "SHA256SUMS"
	bundled     = ".sigstore.json"
	passwordVar = "COSIGN_PASSWORD"
)

// provenanceName is the name of the file with the provenance of the others.
func (s settings) provenanceName() string { return "fermata_" + s.version + ".provenance.json" }

// provenance returns the provenance of files of the release and of the image.
func (s settings) provenance(names []string, digest string) ([]byte, error) {
	files := map[string]string{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(s.release(), name))
		if err != nil {
			return nil, err
		}
		files[name] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	binaries, err := s.binaries(s.platforms[0])
	if err != nil {
		return nil, err
	}
	b := attest.Build{
		Version: s.version, Revision: s.revision, Builder: s.builder,
		Image: s.image, Digest: digest, Platforms: s.platforms, Epoch: s.at.Unix(),
		Inputs: map[string][]byte{},
	}
	b.Go, err = compiler(binaries[0].Data)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(s.root, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a module without dependencies has no go.sum
			return nil, err
		}
		if err == nil {
			b.Inputs[name] = data
		}
	}
	return attest.Provenance(b, files)
}

func (s settings) release() string { return filepath.Join(s.dist, "release") }

// sign signs the checksums and the provenance of the release that archives has made.
func sign(_ context.Context, s settings) error {
	switch {
	case s.key == "":
		return errors.New("-key is missing: the private key that signs")
	case s.revision == "" || strings.Contains(s.version, "dirty"):
		return fmt.Errorf("%s is of no commit: a signature would vouch for what nobody can build again", s.version)
	}
	signer, err := attest.NewSigner(s.key, os.Getenv(passwordVar))
	if err != nil {
		return err
	}
	if err := s.checkFiles(); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(s.release(), sumsFile))
	if err != nil {
		return err
	}
	plain, bundle, err := signer.SignFile(sums)
	if err != nil {
		return err
	}
	if err := errors.Join(s.write(sumsFile+".sig", plain), s.write(sumsFile+bundled, bundle)); err != nil {
		return err
	}
	statement, err := os.ReadFile(filepath.Join(s.release(), s.provenanceName()))
	if err != nil {
		return err
	}
	signed, err := signer.SignStatement(statement)
	if err != nil {
		return err
	}
	return s.write(strings.TrimSuffix(s.provenanceName(), ".json")+bundled, signed)
}

// signatures are the files that sign writes.
func (s settings) signatures() []string {
	return []string{sumsFile + ".sig", sumsFile + bundled, strings.TrimSuffix(s.provenanceName(), ".json") + bundled}
}

// unsign removes signatures of what was there before.
func (s settings) unsign() error {
	for _, name := range s.signatures() {
		if err := os.Remove(filepath.Join(s.release(), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// verify fails unless all files of a release are what who has the key vouches for.
func verify(_ context.Context, s settings) error {
	if s.key == "" {
		return errors.New("-key is missing: the public key of who signs")
	}
	verifier, err := attest.NewVerifier(s.key)
	if err != nil {
		return err
	}
	read := func(name string) (data []byte) {
		if err == nil {
			data, err = os.ReadFile(filepath.Join(s.release(), name))
		}
		return data
	}
	sums, signature := read(sumsFile), read(sumsFile+bundled)
	signed := read(strings.TrimSuffix(s.provenanceName(), ".json") + bundled)
	if err != nil {
		return err
	}
	if err := verifier.File(sums, signature); err != nil {
		return fmt.Errorf("%s: %w", sumsFile, err)
	}
	if err := s.checkFiles(); err != nil {
		return err
	}
	text, statement, err := verifier.Statement(signed)
	if err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	if plain := read(s.provenanceName()); err != nil || !bytes.Equal(text, plain) {
		return fmt.Errorf("%s is not the statement that is signed (%v)", s.provenanceName(), err)
	}
	if err := s.checkStatement(statement, sums); err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "%s is signed, and built from commit %s\n", s.version, commitOf(statement))
	return err
}

var sumLine = regexp.MustCompile(`^([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._+-]*)$`)

// listed are the names in a file of checksums, with the checksums.
func listed(sums []byte) (map[string]string, error) {
	files := map[string]string{}
	for line := range strings.Lines(string(sums)) {
		m := sumLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil || files[m[2]] != "" {
			return nil, fmt.Errorf("%s: the line %q is no checksum of a further file", sumsFile, line)
		}
		files[m[2]] = m[1]
	}
	return files, nil
}

// checkFiles compares the files of the release with their checksums. It refuses a file without a checksum, because the
// release did not write it.
func (s settings) checkFiles() error {
	sums, err := os.ReadFile(filepath.Join(s.release(), sumsFile))
	if err != nil {
		return err
	}
	files, err := listed(sums)
	if err != nil {
		return err
	}
	if files[s.provenanceName()] == "" {
		return fmt.Errorf("%s does not list %s: these are files of another version, or run 'make release'",
			sumsFile, s.provenanceName())
	}
	for name, want := range files {
		data, err := os.ReadFile(filepath.Join(s.release(), name))
		if err != nil {
			return err
		}
		if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != want {
			return fmt.Errorf("%s is not the file of %s", name, sumsFile)
		}
	}
	present, err := os.ReadDir(s.release())
	if err != nil {
		return err
	}
	beside := append(s.signatures(), sumsFile)
	for _, f := range present {
		if files[f.Name()] == "" && !slices.Contains(beside, f.Name()) {
			return fmt.Errorf("%s is not in %s", f.Name(), sumsFile)
		}
	}
	return nil
}

// checkStatement fails unless a statement is about all files of the release and its version, and about the image that
// was built here, if any.
func (s settings) checkStatement(statement *intoto.Statement, sums []byte) error {
	files, err := listed(sums)
	if err != nil {
		return err
	}
	subjects := map[string]string{}
	for _, subject := range statement.Subject {
		subjects[subject.Name] = subject.Digest["sha256"]
	}
	for name, sum := range files {
		if name != s.provenanceName() && subjects[name] != sum {
			return fmt.Errorf("the provenance is not about %s", name)
		}
	}
	definition := statement.Predicate.GetFields()["buildDefinition"].GetStructValue().GetFields()
	parameters := definition["externalParameters"].GetStructValue().GetFields()
	if got := parameters["version"].GetStringValue(); got != s.version {
		return fmt.Errorf("the provenance is of version %q, not of %q", got, s.version)
	}
	digest, err := os.ReadFile(filepath.Join(s.dist, "image", "digest"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	got, want := strings.TrimSpace(string(digest)), "sha256:"+subjects[parameters["image"].GetStringValue()]
	if err != nil || got != want {
		return fmt.Errorf("the image that was built has the digest %s, and the provenance says %s (%v)",
			got, want, err)
	}
	return nil
}

// commitOf is the commit that a statement names.
func commitOf(statement *intoto.Statement) string {
	definition := statement.Predicate.GetFields()["buildDefinition"].GetStructValue().GetFields()
	for _, d := range definition["resolvedDependencies"].GetListValue().GetValues() {
		digest := d.GetStructValue().GetFields()["digest"].GetStructValue().GetFields()
		if commit := digest["gitCommit"].GetStringValue(); commit != "" {
			return commit
		}
	}
	return "unknown"
}
