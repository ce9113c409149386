package redisfunc

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Prefix is the prefix of the names of all libraries.
const Prefix = "fermata_"

// Script is the source of a function.
type Script struct {
	Name   string // lower case letters, digits and '_', unique in its library
	Source string // without a first line "#!lua"
	Flags  []string
}

// Library is a library for FUNCTION LOAD.
type Library struct {
	Name string // its name in FUNCTION LIST and FUNCTION DELETE
	Code string
}

// New composes a library of this kind: "store" becomes fermata_store_<hash>.
func New(kind string, scripts []Script) Library {
	sum := sha256.New()
	for _, s := range scripts {
		fmt.Fprintf(sum, "%s %q %d\n%s", s.Name, s.Flags, len(s.Source), s.Source)
	}
	l := Library{Name: Prefix + kind + "_" + hex.EncodeToString(sum.Sum(nil)[:8])}
	var code strings.Builder
	fmt.Fprintf(&code, "#!lua name=%s\n", l.Name)
	for _, s := range scripts {
		fmt.Fprintf(&code, "redis.register_function{function_name='%s', flags={%s}, callback=function(KEYS, "+
			"ARGV)\n%s\nend}\n",
			l.Function(s.Name), quoteFlags(s.Flags), strings.TrimSuffix(s.Source, "\n"))
	}
	l.Code = code.String()
	return l
}

// Function is the name of a function for FCALL.
func (l Library) Function(name string) string { return l.Name + "_" + name }

func quoteFlags(flags []string) string {
	out := slices.Clone(flags)
	for i, f := range out {
		out[i] = "'" + f + "'"
	}
	return strings.Join(out, ", ")
}
