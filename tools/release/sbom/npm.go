package sbom

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/fermata-io/fermata/tools/release/licence"
)

// Bundle is a file that binaries embed, and the packages of npm that it was made of.
type Bundle struct {
	Data     []byte
	Packages []licence.Module
}

// lock is the part of a package-lock.json that a bill needs.
type lock struct {
	Name     string
	Version  int                    `json:"lockfileVersion"`
	Packages map[string]lockedEntry // by folder; "" is the package itself
}

type lockedEntry struct {
	Version, License, Integrity string
	Dependencies                map[string]string
	OptionalDependencies        map[string]string
	PeerDependencies            map[string]string
	PeerDependenciesMeta        map[string]struct{ Optional bool }
}

// WriteNPM returns the bill of the package that a package-lock.json is of: its dependencies, and theirs, without those
// of its development. These are the versions that the package was tested with; who installs it may get others.
func WriteNPM(product Product, packageLock []byte) ([]byte, error) {
	var l lock
	if err := json.Unmarshal(packageLock, &l); err != nil {
		return nil, fmt.Errorf("sbom: package-lock.json: %w", err)
	}
	top, found := l.Packages[""]
	if l.Version != 3 || !found || l.Name == "" {
		return nil, fmt.Errorf("sbom: package-lock.json is of version %d, want 3 with a package", l.Version)
	}
	b := bill{components: map[string]cdx.Component{}}
	version := strings.TrimPrefix(product.Version, "v")
	root := cdx.Component{
		Type: cdx.ComponentTypeLibrary, BOMRef: "fermata-npm", Name: l.Name, Version: version,
		PackageURL: NPMPackageURL(l.Name, version), Licenses: expression(own),
	}
	if err := b.addLocked(root.BOMRef, "", top, &l); err != nil {
		return nil, fmt.Errorf("sbom: package-lock.json: %w", err)
	}
	if len(b.components) == 0 {
		return nil, errors.New("sbom: package-lock.json names no dependency")
	}
	return b.encode(product.At, &root)
}

// addLocked adds the dependencies of a package that is in a folder, and theirs.
func (b *bill) addLocked(ref, folder string, e lockedEntry, l *lock) error {
	needed := maps.Clone(e.Dependencies)
	if needed == nil {
		needed = map[string]string{}
	}
	maps.Copy(needed, e.PeerDependencies)
	maps.Copy(needed, e.OptionalDependencies)
	var parts []string
	type child struct {
		folder string
		entry  lockedEntry
	}
	added := map[string]child{}
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		in, entry, ok := l.find(folder, name)
		if !ok && e.PeerDependenciesMeta[name].Optional {
			continue
		}
		if !ok {
			return fmt.Errorf("%s needs %s, which is not locked", cmp.Or(folder, "the package"), name)
		}
		c, err := npmComponent(name, entry.Version, entry.License, entry.Integrity)
		if err != nil {
			return err
		}
		parts = append(parts, c.BOMRef)
		if _, known := b.components[c.BOMRef]; !known {
			b.components[c.BOMRef] = c
			added[c.BOMRef] = child{in, entry}
		}
	}
	b.depend(ref, parts)
	for _, ref := range slices.Sorted(maps.Keys(added)) {
		if err := b.addLocked(ref, added[ref].folder, added[ref].entry, l); err != nil {
			return err
		}
	}
	return nil
}

// find returns the package that a package in a folder gets by a name: that of the nearest node_modules.
func (l *lock) find(folder, name string) (in string, e lockedEntry, ok bool) {
	for at := folder; ; at = at[:max(0, strings.LastIndex(at, "/node_modules/"))] {
		in = strings.TrimPrefix(at+"/node_modules/"+name, "/")
		if e, ok = l.Packages[in]; ok || at == "" {
			return in, e, ok
		}
	}
}

// npmComponent is a package of npm. integrity is the hash of its archive as npm writes it; it must be there.
func npmComponent(name, version, spdx, integrity string) (cdx.Component, error) {
	encoded, isSHA512 := strings.CutPrefix(integrity, "sha512-")
	sum, err := base64.StdEncoding.DecodeString(encoded)
	if version == "" || spdx == "" || !isSHA512 || err != nil || len(sum) != 64 {
		return cdx.Component{}, fmt.Errorf("npm package %s %s: version, licence or SHA-512 is missing", name, version)
	}
	purl := NPMPackageURL(name, version)
	return cdx.Component{
		Type: cdx.ComponentTypeLibrary, BOMRef: purl, Name: name, Version: version, PackageURL: purl,
		Licenses: expression(strings.Trim(spdx, "()")),
		Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA512, Value: hex.EncodeToString(sum)}},
	}, nil
}

// NPMPackageURL is the name under which vulnerability databases know a package of npm.
func NPMPackageURL(name, version string) string {
	return "pkg:npm/" + strings.Replace(name, "@", "%40", 1) + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// addBundle adds the packages of a bundle to the binaries that embed it. A bundle that no binary embeds is an error.
func (b *bill) addBundle(bundle Bundle, binaries []Binary) error {
	if len(bundle.Packages) == 0 {
		return nil
	}
	var parts []string
	for _, m := range bundle.Packages {
		c, err := npmComponent(strings.TrimPrefix(m.Path, licence.NPM), m.Version, m.Expression(), m.Integrity)
		if err != nil {
			return err
		}
		b.components[c.BOMRef], parts = c, append(parts, c.BOMRef)
	}
	embedded := false
	for _, binary := range binaries {
		if !binary.embeds(bundle) {
			continue
		}
		embedded = true
		i := slices.IndexFunc(b.dependencies, func(d cdx.Dependency) bool { return d.Ref == reference(binary.Name) })
		all := append(*b.dependencies[i].Dependencies, parts...)
		slices.Sort(all)
		b.dependencies[i].Dependencies = &all
	}
	if !embedded {
		return errors.New("no binary embeds the bundle of the web console as it is in the tree: run 'make binaries'")
	}
	return nil
}

// encode returns the bill as JSON, with a serial number that is made from its content.
func (b *bill) encode(at time.Time, root *cdx.Component) ([]byte, error) {
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: at.UTC().Format(time.RFC3339), Component: root}
	byRef := func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) }
	bom.Components = new(slices.SortedFunc(maps.Values(b.components), byRef))
	bom.Dependencies = &b.dependencies
	unnumbered, err := encode(bom)
	if err != nil {
		return nil, err
	}
	bom.SerialNumber = serial(unnumbered)
	return encode(bom)
}
