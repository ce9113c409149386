package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/tools/release/licence"
	"github.com/fermata-io/fermata/tools/release/sbom"
	"github.com/fermata-io/fermata/tools/release/tree"
)

// commands are the names of the binaries.
var commands = []string{"fermata", "gateway", "scheduler", "worker"}

const thirdParty = "THIRD_PARTY_LICENSES.md"

// licences writes the list of what is linked or embedded, or compares it.
func licences(_ context.Context, s settings) error {
	modules, err := licence.Linked(s.root, s.platforms)
	if err != nil {
		return err
	}
	vendored, err := licence.Vendored(s.root)
	if err != nil {
		return err
	}
	file, want := filepath.Join(s.root, thirdParty), []byte(licence.Document(append(modules, vendored...)))
	if !s.check {
		return os.WriteFile(file, want, 0o644)
	}
	have, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, want) {
		return fmt.Errorf("%s is not current: run 'make licences'", thirdParty)
	}
	return nil
}

// npmLock lists what the package on npm needs.
const npmLock = "sdk/typescript/package-lock.json"

// sboms writes a bill of materials for each platform, and that of the package on npm.
func sboms(_ context.Context, s settings) error {
	modules, err := licence.Linked(s.root, s.platforms)
	if err != nil {
		return err
	}
	for _, platform := range s.platforms {
		bill, err := s.bill(platform, modules, nil)
		if err != nil {
			return err
		}
		if err := s.write(s.base(platform)+".cdx.json", bill); err != nil {
			return err
		}
	}
	lock, err := os.ReadFile(filepath.Join(s.root, npmLock))
	if err != nil {
		return err
	}
	bill, err := sbom.WriteNPM(sbom.Product{Version: s.version, At: s.at}, lock)
	if err != nil {
		return err
	}
	return s.write(s.npmBill(), bill)
}

// npmBill is the file of the bill of materials of the package on npm.
func (s settings) npmBill() string { return "fermata_" + s.version + "_npm.cdx.json" }

// archives writes one archive for each platform, that of the Helm chart, how all of
// them were built, and the checksums of these and of bills of materials. Signatures of
// other files with the same names go.
func archives(_ context.Context, s settings) error {
	var names []string
	for _, platform := range s.platforms {
		archive, err := s.archive(platform)
		if err != nil {
			return err
		}
		if err := s.write(s.base(platform)+".tar.gz", archive); err != nil {
			return err
		}
		names = append(names, s.base(platform)+".cdx.json", s.base(platform)+".tar.gz")
	}
	names = append(names, s.npmBill())
	digest, err := s.digest()
	if err != nil {
		return err
	}
	name, chart, err := s.chart(digest)
	if err != nil {
		return err
	}
	if err := s.write(name, chart); err != nil {
		return err
	}
	names = append(names, name)
	provenance, err := s.provenance(names, digest)
	if err != nil {
		return err
	}
	if err := s.write(s.provenanceName(), provenance); err != nil {
		return err
	}
	sums, err := checksums(s.release(), append(names, s.provenanceName()))
	if err != nil {
		return err
	}
	return errors.Join(s.write(sumsFile, sums), s.unsign())
}

func (s settings) archive(platform string) ([]byte, error) {
	top := s.base(platform) + "/"
	entries := []tree.Entry{{Path: top, Mode: 0o755}}
	binaries, err := s.binaries(platform)
	if err != nil {
		return nil, err
	}
	for _, b := range binaries {
		entries = append(entries, tree.Entry{Path: top + b.Name, Mode: 0o755, Data: b.Data})
	}
	docs, err := s.docs()
	if err != nil {
		return nil, err
	}
	for name, text := range docs {
		entries = append(entries, tree.Entry{Path: top + name, Mode: 0o644, Data: text})
	}
	var out bytes.Buffer
	err = tree.WriteGzip(&out, entries, s.at)
	return out.Bytes(), err
}

// docs are the files that the licences want beside the binaries.
func (s settings) docs() (map[string][]byte, error) {
	docs := map[string][]byte{}
	for _, name := range []string{"LICENSE", thirdParty} {
		text, err := os.ReadFile(filepath.Join(s.root, name))
		if err != nil {
			return nil, err
		}
		docs[name] = text
	}
	return docs, nil
}

func (s settings) bill(platform string, modules, extra []licence.Module) ([]byte, error) {
	binaries, err := s.binaries(platform)
	if err != nil {
		return nil, err
	}
	console, err := s.console()
	if err != nil {
		return nil, err
	}
	return sbom.Write(sbom.Product{Version: s.version, Platform: platform, At: s.at}, binaries, modules, extra, console)
}

// bundle is the script of the web console, as binaries embed it.
const bundle = "console/dist/console.js"

// console returns the bundle of the web console, with the packages that it was made of.
func (s settings) console() (sbom.Bundle, error) {
	packages, err := licence.Vendored(s.root)
	if err != nil {
		return sbom.Bundle{}, err
	}
	data, err := os.ReadFile(filepath.Join(s.root, bundle))
	return sbom.Bundle{Data: data, Packages: packages}, err
}

// builtFor fails for a binary of another platform: otherwise the mistake would show only when it is started.
func builtFor(binary []byte, platform string) error {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return err
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	if got := set["GOOS"] + "/" + set["GOARCH"]; got != platform {
		return fmt.Errorf("it is built for %s", got)
	}
	return nil
}

// compiler is the release of Go that a binary was compiled by.
func compiler(binary []byte) (string, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return "", err
	}
	return info.GoVersion, nil
}

func (s settings) binaries(platform string) ([]sbom.Binary, error) {
	var all []sbom.Binary
	for _, name := range commands {
		data, err := os.ReadFile(filepath.Join(s.dist, "bin", flat(platform), name))
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: run 'make binaries' first", err)
		}
		if err != nil {
			return nil, err
		}
		if err := builtFor(data, platform); err != nil {
			return nil, fmt.Errorf("%s of %s: %w: run 'make binaries'", name, platform, err)
		}
		all = append(all, sbom.Binary{Name: name, Data: data})
	}
	return all, nil
}

func (s settings) base(platform string) string {
	return "fermata_" + s.version + "_" + flat(platform)
}

func flat(platform string) string { return strings.ReplaceAll(platform, "/", "_") }

func (s settings) write(name string, data []byte) error {
	if err := os.MkdirAll(s.release(), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.release(), name), data, 0o644)
}

// checksums lists files as sha256sum does.
func checksums(dir string, names []string) ([]byte, error) {
	var out bytes.Buffer
	for _, name := range slices.Sorted(slices.Values(names)) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(data), name)
	}
	return out.Bytes(), nil
}
