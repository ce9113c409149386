package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestImageThatIsMade reads the OCI layout that `make image` leaves: one image, with a tag, for two processors, each
// with all commands of that processor, a user without rights, labels, a bill of materials, and nothing to break in
// with.
func TestImageThatIsMade(t *testing.T) {
	root := product(t)
	must(t, root, "image", "-platforms", "linux/amd64 linux/arm64 darwin/arm64", "-revision", "abc1234")
	index, err := layout.ImageIndexFromPath(filepath.Join(root, "dist/image/oci"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	top, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v1.2.3" || top.Manifests[0].MediaType != types.OCIImageIndex {
		t.Fatalf("the layout holds %+v", top.Manifests)
	}
	said, err := os.ReadFile(filepath.Join(root, "dist/image/digest"))
	if err != nil || strings.TrimSpace(string(said)) != top.Manifests[0].Digest.String() {
		t.Errorf("the file digest says %q (%v), the layout %s", said, err, top.Manifests[0].Digest)
	}
	images, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	both, err := images.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	machines := map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}
	for _, m := range both.Manifests {
		machine, wanted := machines[m.Platform.String()]
		if !wanted || m.MediaType != types.OCIManifestSchema1 {
			t.Errorf("an image %s for %s", m.MediaType, m.Platform)
			continue
		}
		delete(machines, m.Platform.String())
		image, err := images.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkConfig(t, m.Platform, image)
		checkFiles(t, m.Platform, image, machine)
	}
	if len(machines) > 0 {
		t.Errorf("there is no image for %v", machines)
	}
}

func checkConfig(t *testing.T, platform *v1.Platform, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if !config.Platform().Equals(*platform) || c.User != "65532:65532" || len(c.Entrypoint) > 0 || len(c.Volumes) > 0 {
		t.Errorf("%s: %+v", platform, config)
	}
	for label, want := range map[string]string{
		"version": "v1.2.3", "revision": "abc1234", "licenses": "Apache-2.0", "title": "Fermata", "created": "2023-11-14T22:13:20Z",
		"source": "https://github.com/fermata-io/fermata",
	} {
		if got := c.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("%s: label %s is %q, want %q", platform, label, got, want)
		}
	}
}

func checkFiles(t *testing.T, platform *v1.Platform, image v1.Image, machine elf.Machine) {
	t.Helper()
	files, modes := map[string][]byte{}, map[string]int64{}
	rc := mutate.Extract(image)
	defer rc.Close()
	for r := tar.NewReader(rc); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.Mode
	}
	for _, name := range commands {
		binary, err := elf.NewFile(bytes.NewReader(files["usr/bin/"+name]))
		if err != nil {
			t.Errorf("%s: %s: %v", platform, name, err)
			continue
		}
		libraries, _ := binary.ImportedLibraries()
		if binary.Machine != machine || len(libraries) > 0 || modes["usr/bin/"+name] != 0o755 {
			t.Errorf("%s: %s is for %s, mode %o, and needs %v", platform, name, binary.Machine, modes["usr/bin/"+name], libraries)
		}
	}
	var bill struct {
		Format     string `json:"bomFormat"`
		Components []struct{ Name string }
	}
	if err := json.Unmarshal(files["usr/share/doc/fermata/sbom.cdx.json"], &bill); err != nil || bill.Format != "CycloneDX" || len(bill.Components) < len(commands) {
		t.Errorf("%s: bill of materials %+v (%v)", platform, bill, err)
	}
	for path := range files {
		if strings.HasPrefix(path, "usr/bin/") || strings.HasPrefix(path, "bin/") || modes[path]&0o111 != 0 && len(files[path]) > 0 {
			if name := strings.TrimPrefix(path, "usr/bin/"); name != "" && !strings.Contains(strings.Join(commands, " "), name) {
				t.Errorf("%s: %s is in the image", platform, path)
			}
		}
	}
}

// TestBinariesOfAnotherPlatform: a binary under the wrong name does not get into an image.
func TestBinariesOfAnotherPlatform(t *testing.T) {
	root := product(t)
	binary, err := os.ReadFile(filepath.Join(root, "dist/bin/linux_arm64/worker"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(root, "dist/bin/linux_amd64/worker"), string(binary))
	if err := release(t, root, "image"); err == nil || !strings.Contains(err.Error(), "worker of linux/amd64: it is built for linux/arm64") {
		t.Errorf("error %v, want one that names both", err)
	}
}
