// Package zones lists the names of the time zones that Go's copy of the IANA database has.
package zones

import (
	_ "embed"
	"strings"
)

//go:embed names.txt
var names string

// WithPrefix returns the names that begin with a prefix, without regard to case, sorted.
func WithPrefix(prefix string) []string {
	var found []string
	for name := range strings.Lines(names) {
		name = strings.TrimSpace(name)
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			found = append(found, name)
		}
	}
	return found
}
