package sbom

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/fermata-io/fermata/tools/release/licence"
)

// hash is that of an archive, as npm writes it.
var hash = "sha512-" + strings.Repeat("A", 86) + "=="

// read returns the components of a bill by reference, and what each part depends on.
func read(t *testing.T, bill []byte) (components map[string]cdx.Component, depends map[string][]string) {
	t.Helper()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(bill), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	components, depends = map[string]cdx.Component{}, map[string][]string{}
	for _, c := range *bom.Components {
		components[c.BOMRef] = c
	}
	for _, d := range *bom.Dependencies {
		depends[d.Ref] = nil
		if d.Dependencies != nil {
			depends[d.Ref] = *d.Dependencies
		}
	}
	return components, depends
}

// TestPackagesOfTheBundleAreListed: each binary that embeds the bundle depends on its packages, and no other.
func TestPackagesOfTheBundleAreListed(t *testing.T) {
	binary, modules, _ := sample(t)
	other := binary
	other.Name = "worker"
	const script = "console.log('a web console')"
	binary.Data = append(slices.Clone(binary.Data), script...)
	vendored := licence.Module{Path: "npm:@ui/shown", Version: "1.2.3", Integrity: hash, Licences: []string{"MIT"}}
	console := Bundle{Data: []byte(script), Packages: []licence.Module{vendored}}
	bill, err := Write(product, []Binary{other, binary}, modules, nil, console)
	if err != nil {
		t.Fatal(err)
	}
	components, depends := read(t, bill)
	const purl = "pkg:npm/%40ui/shown@1.2.3"
	c := components[purl]
	if c.Name != "@ui/shown" || c.Version != "1.2.3" || (*c.Licenses)[0].License.ID != "MIT" || (*c.Hashes)[0].Value != strings.Repeat("00", 64) {
		t.Errorf("%s is listed as %+v", purl, c)
	}
	if !slices.Contains(depends["fermata/scheduler"], purl) || slices.Contains(depends["fermata/worker"], purl) {
		t.Errorf("of the packages of the console, the scheduler has %q, the worker %q", depends["fermata/scheduler"], depends["fermata/worker"])
	}
	if _, err := Write(product, []Binary{other}, modules, nil, console); err == nil || !strings.Contains(err.Error(), "make binaries") {
		t.Errorf("no binary embeds the bundle: error %v", err)
	}
	console.Packages[0].Integrity = ""
	if _, err := Write(product, []Binary{binary}, modules, nil, console); err == nil || !strings.Contains(err.Error(), "@ui/shown") {
		t.Errorf("a package without a hash: error %v", err)
	}
}

// locked is the entry of a package in a lock file.
func locked(version, more string) string {
	return fmt.Sprintf(`{"version":%q,"license":"(MIT AND ISC)","integrity":%q%s}`, version, hash, more)
}

// TestPackagesOfALockFileAreListed: those that the package needs and those that these need, each in the version of the
// nearest folder, but none for its development.
func TestPackagesOfALockFileAreListed(t *testing.T) {
	text := `{"name":"@x/pkg","lockfileVersion":3,"packages":{
		"":{"dependencies":{"a":"^1","b":"^1"},"devDependencies":{"dev":"1"}},
		"node_modules/a":` + locked("1.0.0", `,"dependencies":{"b":"^2"},"peerDependencies":{"c":"*","z":"*"},"peerDependenciesMeta":{"z":{"optional":true}}`) + `,
		"node_modules/a/node_modules/b":` + locked("2.0.0", `,"dependencies":{"c":"*"}`) + `,
		"node_modules/b":` + locked("1.5.0", "") + `,
		"node_modules/c":` + locked("3.0.0+build", `,"dependencies":{"a":"*"}`) + `,
		"node_modules/dev":` + locked("9.0.0", "") + `}}`
	bill, err := WriteNPM(product, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	components, depends := read(t, bill)
	const a, b1, b2, c = "pkg:npm/a@1.0.0", "pkg:npm/b@1.5.0", "pkg:npm/b@2.0.0", "pkg:npm/c@3.0.0%2Bbuild"
	if got, want := slices.Sorted(maps.Keys(components)), []string{a, b1, b2, c}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	for ref, want := range map[string][]string{"fermata-npm": {a, b1}, a: {b2, c}, b1: nil, b2: {c}, c: {a}} {
		if !slices.Equal(depends[ref], want) {
			t.Errorf("%s depends on %q, want %q", ref, depends[ref], want)
		}
	}
	if got := (*components[a].Licenses)[0].Expression; got != "MIT AND ISC" {
		t.Errorf("licence %q", got)
	}
	for name, wrong := range map[string]string{
		"not JSON":               "{",
		"an older format":        strings.Replace(text, `"lockfileVersion":3`, `"lockfileVersion":1`, 1),
		"a package is not there": strings.Replace(text, `"node_modules/c"`, `"node_modules/d"`, 1),
		"without a hash":         strings.Replace(text, hash, "", 1),
		"without a licence":      strings.Replace(text, "(MIT AND ISC)", "", 1),
		"no dependency":          `{"name":"x","lockfileVersion":3,"packages":{"":{}}}`,
	} {
		if _, err := WriteNPM(product, []byte(wrong)); err == nil {
			t.Errorf("%s: it was written", name)
		}
	}
}

// TestPackageOnNPMIsListed reads the lock file of the package that is published.
func TestPackageOnNPMIsListed(t *testing.T) {
	text, err := os.ReadFile("../../../sdk/typescript/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	bill, err := WriteNPM(product, text)
	if err != nil {
		t.Fatal(err)
	}
	components, depends := read(t, bill)
	names := map[string]bool{}
	for _, c := range components {
		names[c.Name] = true
	}
	for _, want := range []string{"@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-node"} {
		if !names[want] {
			t.Errorf("%s is not listed", want)
		}
	}
	if names["typescript"] || len(depends["fermata-npm"]) != 3 {
		t.Errorf("listed %v, of them used directly %q", names, depends["fermata-npm"])
	}
}
