// Package sbom writes the bill of materials of one platform's binaries, as
// CycloneDX JSON. It lists what was linked: the modules come from the build
// information in the binaries, not from go.mod. The packages of npm that the
// web console was made of are listed for each binary that embeds its bundle.
// [WriteNPM] writes the bill of the package that is published on npm.
//
// The same binaries give the same bytes: the time is given, the serial number
// is made from the content.
package sbom

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/fermata-io/fermata/tools/release/licence"
)

// Product is what the bill is of.
type Product struct {
	Version  string
	Platform string // linux/amd64
	At       time.Time
}

// Binary is one command as built.
type Binary struct {
	Name string
	Data []byte
}

// embeds reports whether the binary has the file of the bundle.
func (b *Binary) embeds(bundle Bundle) bool { return bytes.Contains(b.Data, bundle.Data) }

// own is the licence of Fermata's own code.
const own = "Apache-2.0"

// Write returns the bill of the binaries. The modules give the licences of what
// is linked; extra modules are listed beside the binaries, as parts of the
// product itself. A linked module that modules lacks is an error.
func Write(product Product, binaries []Binary, modules, extra []licence.Module, console Bundle) ([]byte, error) {
	b := bill{known: map[string]licence.Module{}, components: map[string]cdx.Component{}}
	for _, m := range modules {
		b.known[m.Path] = m
	}
	root := cdx.Component{
		Type: cdx.ComponentTypeApplication, BOMRef: "fermata", Name: "fermata", Version: product.Version,
		Licenses: expression(own), Properties: &[]cdx.Property{{Name: "fermata:platform", Value: product.Platform}},
	}
	var parts []string
	for _, binary := range binaries {
		if err := b.add(binary, product.Version); err != nil {
			return nil, fmt.Errorf("sbom: %s: %w", binary.Name, err)
		}
		parts = append(parts, reference(binary.Name))
	}
	for _, m := range extra {
		parts = append(parts, b.component(m))
	}
	b.depend(root.BOMRef, parts)
	if err := b.addBundle(console, binaries); err != nil {
		return nil, fmt.Errorf("sbom: %w", err)
	}
	return b.encode(product.At, &root)
}

type bill struct {
	known        map[string]licence.Module
	components   map[string]cdx.Component // by reference
	dependencies []cdx.Dependency
}

func (b *bill) add(binary Binary, version string) error {
	info, err := buildinfo.Read(bytes.NewReader(binary.Data))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(binary.Data)
	ref := reference(binary.Name)
	b.components[ref] = cdx.Component{
		Type: cdx.ComponentTypeApplication, BOMRef: ref, Name: binary.Name, Version: version,
		Licenses: expression(own),
		Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}
	linked, err := b.linked(info)
	if err != nil {
		return err
	}
	var parts []string
	for _, m := range linked {
		parts = append(parts, b.component(m))
	}
	b.depend(ref, parts)
	return nil
}

// linked lists the modules in a binary, and the standard library.
func (b *bill) linked(info *debug.BuildInfo) ([]licence.Module, error) {
	standard := b.known[licence.Standard]
	standard.Version = strings.TrimPrefix(info.GoVersion, "go")
	all := []licence.Module{standard}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s: a release is built from published modules", dep.Path, dep.Replace.Path)
		}
		m, ok := b.known[dep.Path]
		if !ok || m.Version != dep.Version {
			return nil, fmt.Errorf("%s %s is linked, but not among the modules whose licences are known", dep.Path, dep.Version)
		}
		all = append(all, m)
	}
	if standard.Path == "" {
		return nil, errors.New("the licence of the standard library is not known")
	}
	return all, nil
}

func (b *bill) component(m licence.Module) string {
	purl := PackageURL(m.Path, m.Version)
	b.components[purl] = cdx.Component{
		Type: cdx.ComponentTypeLibrary, BOMRef: purl, Name: m.Path, Version: m.Version, PackageURL: purl,
		Licenses: expression(m.Expression()),
	}
	return purl
}

func (b *bill) depend(ref string, on []string) {
	slices.Sort(on)
	b.dependencies = append(b.dependencies, cdx.Dependency{Ref: ref, Dependencies: &on})
}

// PackageURL is the name under which vulnerability databases know a module.
func PackageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

func reference(command string) string { return "fermata/" + command }

func expression(spdx string) *cdx.Licenses {
	if strings.Contains(spdx, " ") {
		return &cdx.Licenses{{Expression: spdx}}
	}
	return &cdx.Licenses{{License: &cdx.License{ID: spdx}}}
}

func encode(bom *cdx.BOM) ([]byte, error) {
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("sbom: %w", err)
	}
	return out.Bytes(), nil
}

// serial makes a UUID (version 8, of the maker's own making) of the content.
func serial(content []byte) string {
	sum := sha256.Sum256(content)
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
