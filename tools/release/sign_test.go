package main

import (
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/fermata-io/fermata/tools/release/attest"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// keys makes a pair of keys as openssl does.
func keys(t *testing.T, kind ...string) (private, public string) {
	t.Helper()
	dir := t.TempDir()
	private, public = filepath.Join(dir, "release.key"), filepath.Join(dir, "release.pub")
	for _, args := range [][]string{append([]string{"genpkey", "-out", private, "-algorithm"}, kind...), {"pkey", "-in", private, "-pubout", "-out", public}} {
		if out, err := exec.Command("openssl", args...).CombinedOutput(); err != nil {
			t.Fatalf("openssl: %v\n%s", err, out)
		}
	}
	return private, public
}

var p256 = []string{"EC", "-pkeyopt", "ec_paramgen_curve:P-256"}

// made is a release that was built and signed.
func made(t *testing.T, private string) (root string) {
	t.Helper()
	root = product(t)
	must(t, root, "sbom")
	must(t, root, "archives", "-revision", commit, "-image", "r.example/fermata")
	must(t, root, "sign", "-revision", commit, "-key", private)
	return root
}

// TestSignedRelease: who has the public key can tell that all files are of who has the private one, whichever kind of
// key it is. The signature of the checksums needs nothing but openssl.
func TestSignedRelease(t *testing.T) {
	ecPrivate, ecPublic := keys(t, p256...)
	edPrivate, edPublic := keys(t, "ed25519")
	sealed, open, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte("pass")))
	if err != nil {
		t.Fatal(err)
	}
	coPrivate, coPublic := filepath.Join(t.TempDir(), "cosign.key"), filepath.Join(t.TempDir(), "cosign.pub")
	put(t, coPrivate, string(sealed))
	put(t, coPublic, string(open))
	t.Setenv(passwordVar, "pass")
	root := made(t, ecPrivate)
	for kind, key := range map[string][2]string{"ECDSA": {ecPrivate, ecPublic}, "Ed25519": {edPrivate, edPublic}, "cosign": {coPrivate, coPublic}} {
		must(t, root, "sign", "-revision", commit, "-key", key[0])
		must(t, root, "verify", "-key", key[1])
		if kind == "Ed25519" {
			continue // openssl signs and verifies those in another way
		}
		dir := filepath.Join(root, "dist/release")
		text, err := os.ReadFile(filepath.Join(dir, sumsFile+".sig"))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		signature := filepath.Join(t.TempDir(), "raw")
		put(t, signature, string(raw))
		if out, err := exec.Command("openssl", "dgst", "-sha256", "-verify", key[1], "-signature", signature, filepath.Join(dir, sumsFile)).CombinedOutput(); err != nil {
			t.Errorf("%s: openssl: %v\n%s", kind, err, out)
		}
	}
	t.Setenv(passwordVar, "wrong")
	if err := release(t, root, "sign", "-revision", commit, "-key", coPrivate); err == nil {
		t.Error("a key was opened by a wrong password")
	}
}

// TestForgedReleases: each way to give somebody other files than were signed is found.
func TestForgedReleases(t *testing.T) {
	private, public := keys(t, p256...)
	stranger, _ := keys(t, p256...)
	root := made(t, private)
	whole := filepath.Join(root, "dist/release")
	good := map[string][]byte{}
	for _, name := range names(t, whole) {
		good[name], _ = os.ReadFile(filepath.Join(whole, name))
	}
	const archive, provenance, signed = "fermata_v1.2.3_linux_amd64.tar.gz", "fermata_v1.2.3.provenance.json", "fermata_v1.2.3.provenance.sigstore.json"
	edit := func(name, from, to string) {
		put(t, filepath.Join(whole, name), strings.Replace(string(good[name]), from, to, 1))
	}
	resum := func() { // checksums are of what is there
		all := slices.DeleteFunc(names(t, whole), func(name string) bool {
			return strings.HasSuffix(name, bundled) || strings.HasPrefix(name, sumsFile)
		})
		sums, err := checksums(whole, all)
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(whole, sumsFile), string(sums))
	}
	resign := func(key string) {
		signer, err := attest.NewSigner(key, "")
		if err != nil {
			t.Fatal(err)
		}
		sums, err := os.ReadFile(filepath.Join(whole, sumsFile))
		if err != nil {
			t.Fatal(err)
		}
		_, bundle, err := signer.SignFile(sums)
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(whole, sumsFile+bundled), string(bundle))
	}
	for name, c := range map[string]struct {
		forge func()
		want  string
	}{
		"another archive":             {func() { put(t, filepath.Join(whole, archive), "evil") }, archive + " is not the file"},
		"and its checksum":            {func() { put(t, filepath.Join(whole, archive), "evil"); resum() }, "SHA256SUMS: attest"},
		"signed by somebody":          {func() { put(t, filepath.Join(whole, archive), "evil"); resum(); resign(stranger) }, "SHA256SUMS: attest"},
		"signed, and built by nobody": {func() { put(t, filepath.Join(whole, archive), "evil"); resum(); resign(private) }, "is not about " + archive},
		"a file beside":               {func() { put(t, filepath.Join(whole, "install.sh"), "evil") }, "install.sh is not in SHA256SUMS"},
		"a file less":                 {func() { _ = os.Remove(filepath.Join(whole, archive)) }, archive},
		"a path":                      {func() { edit(sumsFile, archive, "../"+archive); resign(private) }, "is no checksum"},
		"a name twice": {func() {
			put(t, filepath.Join(whole, sumsFile), strings.Repeat(string(good[sumsFile]), 2))
			resign(private)
		}, "is no checksum of a further file"},
		"no signature":                    {func() { _ = os.Remove(filepath.Join(whole, sumsFile+bundled)) }, sumsFile + bundled},
		"an empty signature":              {func() { put(t, filepath.Join(whole, sumsFile+bundled), "{}") }, "the bundle is a"},
		"a signature of something else":   {func() { put(t, filepath.Join(whole, sumsFile+bundled), string(good[signed])) }, "no signature of a file"},
		"no signed provenance":            {func() { _ = os.Remove(filepath.Join(whole, signed)) }, signed},
		"a file signed, not a statement":  {func() { put(t, filepath.Join(whole, signed), string(good[sumsFile+bundled])) }, "no signed statement"},
		"a statement changed in its seal": {func() { edit(signed, `"payload": "`, `"payload": "e30`) }, "provenance: "},
		"another commit":                  {func() { edit(provenance, commit, strings.Repeat("f", 40)); resum(); resign(private) }, "is not the statement that is signed"},
		"another image":                   {func() { put(t, filepath.Join(root, "dist/image/digest"), "sha256:0\n") }, "the image that was built has the digest sha256:0"},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, root, "verify", "-key", public)
			c.forge()
			if err := release(t, root, "verify", "-key", public); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if err := putBack(root, whole, good); err != nil {
				t.Fatal(err)
			}
		})
	}
	if err := release(t, root, "verify", "-key", public, "-version", "v1.2.4"); err == nil {
		t.Error("a release of another version is taken")
	}
}

// putBack undoes what was forged.
func putBack(root, whole string, good map[string][]byte) error {
	for _, dir := range []string{whole, filepath.Join(root, "dist/image")} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := os.Mkdir(whole, 0o755); err != nil {
		return err
	}
	for name, data := range good {
		if err := os.WriteFile(filepath.Join(whole, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestWhatIsNotSigned: a signature is of a commit that others can build, and of files that are those of the build.
func TestWhatIsNotSigned(t *testing.T) {
	private, _ := keys(t, p256...)
	root := made(t, private)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"changes that are not committed": {[]string{"-revision", commit, "-key", private, "-version", "v1.2.3-dirty"}, "is of no commit"},
		"no commit":                      {[]string{"-key", private}, "is of no commit"},
		"no key":                         {[]string{"-revision", commit}, "-key is missing"},
		"another version":                {[]string{"-revision", commit, "-key", private, "-version", "v1.2.4"}, "files of another version"},
	} {
		if err := release(t, root, "sign", c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
	put(t, filepath.Join(root, "dist/release/fermata-1.2.3.tgz"), "evil")
	if err := release(t, root, "sign", "-revision", commit, "-key", private); err == nil || !strings.Contains(err.Error(), "is not the file of") {
		t.Errorf("a file that changed after the build: %v", err)
	}
	must(t, root, "archives", "-revision", commit)
	for _, name := range names(t, filepath.Join(root, "dist/release")) {
		if strings.HasSuffix(name, bundled) || strings.HasSuffix(name, ".sig") {
			t.Errorf("%s of the build before is left", name)
		}
	}
}

// TestProvenance: it names all files and the image with their hashes, the commit, what compiled them and what pins
// their modules; and the packed chart runs that image.
func TestProvenance(t *testing.T) {
	root := product(t)
	platforms := []string{"-platforms", "linux/amd64 linux/arm64", "-revision", commit, "-image", "r.example/fermata", "-builder", "https://ci.example/1"}
	for _, task := range []string{"sbom", "archives", "image"} {
		must(t, root, task, platforms...)
	}
	text, err := os.ReadFile(filepath.Join(root, "dist/release/fermata_v1.2.3.provenance.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Type      string `json:"_type"`
		Predicate struct {
			Build struct {
				Type     string         `json:"buildType"`
				External map[string]any `json:"externalParameters"`
				Internal map[string]any `json:"internalParameters"`
				Inputs   []struct {
					Name   string
					Digest map[string]string
				} `json:"resolvedDependencies"`
			} `json:"buildDefinition"`
			Run struct{ Builder struct{ ID string } } `json:"runDetails"`
		}
		PredicateType string `json:"predicateType"`
		Subject       []struct {
			Name   string
			Digest map[string]string
		}
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	digest, err := os.ReadFile(filepath.Join(root, "dist/image/digest"))
	if err != nil {
		t.Fatal(err)
	}
	image := strings.TrimSpace(string(digest))
	var got []string
	for _, subject := range s.Subject {
		got = append(got, subject.Name)
		if subject.Name == "r.example/fermata" && "sha256:"+subject.Digest["sha256"] != image {
			t.Errorf("the image is %s, and the provenance says %v", image, subject.Digest)
		}
	}
	want := []string{
		"fermata-1.2.3.tgz", "fermata_v1.2.3_linux_amd64.cdx.json", "fermata_v1.2.3_linux_amd64.tar.gz", "fermata_v1.2.3_linux_arm64.cdx.json",
		"fermata_v1.2.3_linux_arm64.tar.gz", "fermata_v1.2.3_npm.cdx.json", "r.example/fermata",
	}
	b := s.Predicate.Build
	if !slices.Equal(got, want) || s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" || s.Predicate.Run.Builder.ID != "https://ci.example/1" {
		t.Errorf("%s\nsubjects %q, want %q", text, got, want)
	}
	if b.Inputs[0].Digest["gitCommit"] != commit || b.Inputs[1].Name != "go.mod" || b.External["version"] != "v1.2.3" || !strings.HasPrefix(fmt.Sprint(b.Internal["go"]), "go1.") {
		t.Errorf("build %+v", b)
	}
	chart, err := os.ReadFile(filepath.Join(root, "dist/release/fermata-1.2.3.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if files, _ := unpacked(t, chart); !strings.Contains(files["fermata/Chart.yaml"], "fermata.io/image-digest: "+`"`+image+`"`) {
		t.Errorf("the chart does not run %s:\n%s", image, files["fermata/Chart.yaml"])
	}
}
