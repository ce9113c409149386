package oci

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var build = Build{Version: "v1.2.3", Revision: "1a2d10f", At: time.Unix(1_700_000_000, 0)}

func contents(platform string) Contents {
	return Contents{
		Platform: platform,
		Commands: map[string][]byte{
			"scheduler": []byte("scheduler of " + platform), "worker": []byte("worker of " + platform), "fermata": []byte("fermata of " + platform),
			"gateway": []byte("gateway of " + platform),
		},
		Docs: map[string][]byte{"LICENSE": []byte("free"), "sbom.cdx.json": []byte("{}")},
	}
}

func index(t *testing.T, b Build) v1.ImageIndex {
	t.Helper()
	i, err := Index(b, []Contents{contents("linux/amd64"), contents("linux/arm64")})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func digest(t *testing.T, i v1.ImageIndex) string {
	t.Helper()
	d, err := i.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func TestSameInputsSameDigest(t *testing.T) {
	one, two := index(t, build), index(t, build)
	if digest(t, one) != digest(t, two) {
		t.Errorf("digests %s and %s of the same inputs", digest(t, one), digest(t, two))
	}
	later := build
	later.At = build.At.Add(time.Second)
	if digest(t, one) == digest(t, index(t, later)) {
		t.Error("the age of the files is not in the image")
	}
}

func TestImageIsSafeByDefault(t *testing.T) {
	images, err := Images(index(t, build))
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(images)); !slices.Equal(got, []string{"linux/amd64", "linux/arm64"}) {
		t.Fatalf("platforms %q", got)
	}
	for platform, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c := config.Config; c.User != "65532:65532" || c.Entrypoint != nil || !slices.Equal(c.Cmd, []string{"scheduler"}) ||
			c.Labels["org.opencontainers.image.version"] != "v1.2.3" || c.Labels["org.opencontainers.image.revision"] != "1a2d10f" ||
			c.Labels["org.opencontainers.image.licenses"] != "Apache-2.0" {
			t.Errorf("%s: config %+v", platform, c)
		}
		if !config.Created.Equal(build.At) {
			t.Errorf("%s: created %v", platform, config.Created)
		}
	}
}

// TestFiles looks at what a container of the image finds.
func TestFiles(t *testing.T) {
	images, err := Images(index(t, build))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	rc := mutate.Extract(images["linux/arm64"])
	defer rc.Close()
	for r := tar.NewReader(rc); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(data)
		checkHeader(t, h)
	}
	for file, want := range map[string]string{
		"usr/bin/scheduler": "scheduler of linux/arm64", "usr/bin/worker": "worker of linux/arm64", "usr/bin/fermata": "fermata of linux/arm64",
		"etc/passwd": passwd, "etc/group": group, "usr/share/doc/fermata/sbom.cdx.json": "{}",
	} {
		if found[file] != want {
			t.Errorf("%s holds %q, want %q", file, found[file], want)
		}
	}
	if n := countAuthorities(t, []byte(found["etc/ssl/certs/ca-certificates.crt"])); n < 80 {
		t.Errorf("%d certificate authorities", n)
	}
}

// checkHeader holds a file against what a read-only root file system and a user
// without rights ask for.
func checkHeader(t *testing.T, h *tar.Header) {
	t.Helper()
	path := strings.TrimSuffix(h.Name, "/")
	if !h.ModTime.Equal(build.At) {
		t.Errorf("%s is from %v", path, h.ModTime)
	}
	if h.Mode&0o6000 != 0 {
		t.Errorf("%s runs as its owner", path)
	}
	mayWrite := path == "tmp" || path == "home/nonroot"
	if writable := h.Mode&0o022 != 0 || h.Uid != 0; writable != mayWrite {
		t.Errorf("%s of user %d has mode %o", path, h.Uid, h.Mode)
	}
}

func countAuthorities(t *testing.T, bundle []byte) int {
	t.Helper()
	n := 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func TestSavedImageIsValid(t *testing.T) {
	tag, err := name.NewTag("ghcr.io/fermata-io/fermata:v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "image")
	made := index(t, build)
	for range 2 { // the second replaces the first
		if err := Save(dir, made, tag); err != nil {
			t.Fatal(err)
		}
	}
	saved, err := layout.ImageIndexFromPath(filepath.Join(dir, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := saved.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest.String() != digest(t, made) {
		t.Fatalf("the layout holds %+v", manifest.Manifests)
	}
	if err := validate.Index(saved); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "digest")); err != nil || string(text) != digest(t, made)+"\n" {
		t.Errorf("file digest holds %q, error %v", text, err)
	}
	images, err := Images(made)
	if err != nil {
		t.Fatal(err)
	}
	for platform, image := range images {
		checkArchive(t, filepath.Join(dir, "fermata_v1.2.3_"+strings.ReplaceAll(platform, "/", "_")+".docker.tar"), tag, image)
	}
}

// checkArchive holds an archive for `docker load` against the image in it.
func checkArchive(t *testing.T, file string, tag name.Tag, image v1.Image) {
	t.Helper()
	loaded, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(loaded); err != nil {
		t.Error(err)
	}
	want, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := loaded.ConfigName(); err != nil || got != want {
		t.Errorf("%s holds image %v, want %v (error %v)", filepath.Base(file), got, want, err)
	}
}

func TestPushedImageComesBack(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/fermata:v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	made := index(t, build)
	if err := Push(t.Context(), made, tag); err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if digest(t, pulled) != digest(t, made) {
		t.Errorf("pushed %s, pulled %s", digest(t, made), digest(t, pulled))
	}
	if err := validate.Index(pulled); err != nil {
		t.Error(err)
	}
	arm, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "arm64"}))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := arm.Layers()
	if err != nil || len(layers) != 2 {
		t.Fatalf("layers %v, error %v", layers, err)
	}
	content, err := layers[1].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	data, err := io.ReadAll(content)
	if err != nil || !bytes.Contains(data, []byte("scheduler of linux/arm64")) {
		t.Errorf("the image for arm64 lacks its scheduler (error %v)", err)
	}
}

func TestPushSaysWhatItCouldNotReach(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/fermata:v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if err := Push(t.Context(), index(t, build), tag); err == nil || !strings.Contains(err.Error(), tag.String()) {
		t.Errorf("error %v, want one that names %s", err, tag)
	}
}
