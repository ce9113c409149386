package sbom

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/fermata-io/fermata/tools/release/licence"
)

var product = Product{Version: "v1.2.3", Platform: "linux/amd64", At: time.Unix(1_700_000_000, 0)}

// built is the command release itself: a binary with modules linked into it.
var built = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "sbom")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "release")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", file, "..").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return os.ReadFile(file)
})

// sample returns a binary, the modules in it, and what the binary says of them.
func sample(t *testing.T) (Binary, []licence.Module, *debug.BuildInfo) {
	t.Helper()
	data, err := built()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Deps) == 0 {
		t.Fatal("a binary without modules proves nothing")
	}
	modules := []licence.Module{{Path: licence.Standard, Licences: []string{"BSD-3-Clause"}}}
	for _, dep := range info.Deps {
		modules = append(modules, licence.Module{Path: dep.Path, Version: dep.Version, Licences: []string{"Apache-2.0", "MIT"}})
	}
	return Binary{Name: "scheduler", Data: data}, modules, info
}

func TestEveryLinkedModuleIsListed(t *testing.T) {
	binary, modules, info := sample(t)
	out, err := Write(product, []Binary{binary}, modules, nil, Bundle{})
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(out), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	listed := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		listed[c.PackageURL] = c
	}
	depends := map[string][]string{}
	for _, d := range *bom.Dependencies {
		depends[d.Ref] = *d.Dependencies
	}
	for _, dep := range info.Deps {
		purl := PackageURL(dep.Path, dep.Version)
		c, ok := listed[purl]
		if !ok || c.Version != dep.Version || c.Licenses == nil || (*c.Licenses)[0].Expression != "Apache-2.0 AND MIT" {
			t.Errorf("%s is listed as %+v", purl, c)
		}
		if !slices.Contains(depends["fermata/scheduler"], purl) {
			t.Errorf("the scheduler does not depend on %s", purl)
		}
	}
	standard := PackageURL(licence.Standard, strings.TrimPrefix(info.GoVersion, "go"))
	if _, ok := listed[standard]; !ok {
		t.Errorf("the standard library is not listed as %s", standard)
	}
	if !slices.Equal(depends["fermata"], []string{"fermata/scheduler"}) {
		t.Errorf("Fermata consists of %q", depends["fermata"])
	}
}

func TestSameContentSameBytes(t *testing.T) {
	binary, modules, _ := sample(t)
	write := func(p Product) string {
		out, err := Write(p, []Binary{binary}, modules, nil, Bundle{})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	elsewhere, later := product, product
	elsewhere.At = product.At.In(time.FixedZone("far", 9*3600))
	later.At = product.At.Add(time.Second)
	if write(product) != write(elsewhere) {
		t.Error("the same content gives other bytes")
	}
	if serialOf(write(product)) == serialOf(write(later)) {
		t.Error("other content has the same serial number")
	}
}

func serialOf(bom string) string {
	_, rest, _ := strings.Cut(bom, `"serialNumber": "`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

func TestWriteRefusesWhatItDoesNotKnow(t *testing.T) {
	binary, modules, _ := sample(t)
	last := len(modules) - 1
	older := slices.Clone(modules)
	older[last].Version = "v0.0.1"
	tests := []struct {
		name    string
		binary  Binary
		modules []licence.Module
		want    string
	}{
		{"a module without a licence", binary, modules[:last], modules[last].Path},
		{"another version", binary, older, "not among the modules"},
		{"no licence of the standard library", binary, modules[1:], "standard library"},
		{"no Go binary", Binary{Name: "x", Data: []byte("#!/bin/sh\n")}, modules, "x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Write(product, []Binary{tt.binary}, tt.modules, nil, Bundle{}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
