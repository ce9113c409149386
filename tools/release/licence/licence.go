// Package licence finds the licences of the modules that are linked into the
// commands, and refuses those that the project cannot ship.
//
// It looks at what is linked, not at what go.mod names: at each package of the
// commands, on every platform of a release, and at the licence files in the
// package's directory and those above it in its module. Only the module cache
// is read.
package licence

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	classifier "github.com/google/licenseclassifier/v2"
	"github.com/google/licenseclassifier/v2/assets"
)

// Allowed are the licences, by SPDX identifier, that a linked module may have.
// All but one require only that their text is included. MPL-2.0 covers
// the files that bear it: they are linked as published, and the list names
// the source. BSL-1.0 is the Boost license, as permissive as MIT; the
// Business Source License is BUSL-1.1, which is not allowed.
var Allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "MIT", "MPL-2.0", "Unlicense"}

// Module is a linked module, or the standard library.
type Module struct {
	Path    string
	Version string // empty for the standard library, which has that of the toolchain
	// Integrity is the hash of the archive of a package of npm, as npm writes it; empty for others.
	Integrity string
	Files     []File // sorted by name
	// Licences are SPDX identifiers, sorted. Several mean that all of them hold.
	Licences []string
}

// Expression is the SPDX licence expression of the module.
func (m Module) Expression() string { return strings.Join(m.Licences, " AND ") }

// File is a licence or a notice.
type File struct {
	Name string // relative to the module
	Text string
}

// confidence is how much of a licence's text must be there word by word. Of the
// modules linked at the time of writing the lowest was 0.92, of a short notice.
const confidence = 0.9

// library holds the licences that there are. Reading them takes a second.
var library = sync.OnceValues(assets.DefaultClassifier)

// Classify fills in the licences of every module. The error names all modules
// whose licence is unknown, missing or not allowed.
func Classify(modules []Module) error {
	reader, err := library()
	if err != nil {
		return fmt.Errorf("licence: %w", err)
	}
	var faults []error
	for i := range modules {
		m := &modules[i]
		if err := m.classify(reader); err != nil {
			faults = append(faults, fmt.Errorf("licence: %s %s: %w", m.Path, m.Version, err))
		}
	}
	return errors.Join(faults...)
}

func (m *Module) classify(reader *classifier.Classifier) error {
	found := map[string]bool{}
	for _, f := range m.Files {
		if !isLicence(f.Name) {
			continue
		}
		names := recognise(reader, f.Text)
		if len(names) == 0 {
			return fmt.Errorf("%s is the text of no licence that is known", f.Name)
		}
		for _, name := range names {
			if !slices.Contains(Allowed, name) {
				return fmt.Errorf("%s is %s, which is not among those allowed: %s", f.Name, name, strings.Join(Allowed, ", "))
			}
			found[name] = true
		}
	}
	if len(found) == 0 {
		return errors.New("no licence file")
	}
	m.Licences = slices.Sorted(maps.Keys(found))
	return nil
}

func recognise(reader *classifier.Classifier, text string) []string {
	var names []string
	for _, match := range reader.Match([]byte(text)).Matches {
		// A header is the short form by which a file refers to a whole licence.
		if (match.MatchType == "License" || match.MatchType == "Header") && match.Confidence >= confidence {
			names = append(names, match.Name)
		}
	}
	return names
}
