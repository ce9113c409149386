package runner

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"io/fs"
	"strings"

	"github.com/fermata-io/fermata/internal/redis/redisfunc"
)

//go:embed lua/*.lua lua/parts/*.lua
var files embed.FS

// Script is one Lua script, made ready for the kind of server at hand.
type Script struct {
	Name   string
	Source string
	SHA    string // its name in the server's cache
	// Function is its name where scripts are called as functions, else "".
	Function string
	// Mutates: its effects are confirmed to the durability class.
	Mutates bool
	// Sharded: it works on a shard, takes the common arguments and answers
	// with code and clock.
	Sharded bool
	// MayShare: its calls may share a pipeline with those of other callers.
	MayShare bool
}

// ClockUse is what a script does with the clock of its shard.
type ClockUse int

const (
	// WithoutClock: the script works on no shard, or does not read the shard's clock.
	WithoutClock ClockUse = iota
	// WithClock: the clock is read and stored before the script begins.
	WithClock
	// StoringClock: the clock is read before the script begins, with a batch. The script stores both.
	StoringClock
)

// commonParts are the parts of this package that precede a script.
var commonParts = map[ClockUse][]string{
	WithoutClock: {"prelude"},
	WithClock:    {"prelude", "time", "tick"},
	StoringClock: {"prelude", "batch", "time"},
}

// Source describes a script of a package: a file, the parts that precede it, and its flags. All of them are
// constants of that package.
type Source struct {
	Files fs.FS  // has lua/NAME.lua, and lua/parts/PART.lua for each part
	Name  string // of the file and of the script
	Flags string // of a script on a real server, such as allow-oom
	Clock ClockUse
	Parts []string // those of Files, after the ones that Clock implies
	// Variant distinguishes the function from others that are made of the same file; "" if there are none.
	Variant string
	// Expand replaces the macros of the file; nil if it has none.
	Expand func(text string) string
}

// text is the script without its flags.
func (s Source) text() string {
	var text strings.Builder
	for _, part := range commonParts[s.Clock] {
		text.WriteString(readFile(files, "parts/"+part))
	}
	for _, part := range s.Parts {
		text.WriteString(readFile(s.Files, "parts/"+part))
	}
	text.WriteString(readFile(s.Files, s.Name))
	if s.Expand != nil {
		return s.Expand(text.String())
	}
	return text.String()
}

// function is the name of the function. A file with several flags, or variants, makes several functions.
func (s Source) function() string {
	name := s.Name
	if s.Variant != "" {
		name += "_" + s.Variant
	}
	if s.Flags != "" {
		name += "_" + strings.ReplaceAll(s.Flags, "-", "_")
	}
	return name
}

// readFile reads an embedded file. A missing one is a programming error.
func readFile(from fs.FS, name string) string {
	text, err := fs.ReadFile(from, "lua/"+name+".lua")
	if err != nil {
		panic("runner: " + err.Error())
	}
	return string(text)
}

// Loader composes scripts and remembers them, so that they can be called as functions of one library.
type Loader struct {
	embedded bool
	made     []madeScript
}

// madeScript is a script with the source that it was made from.
type madeScript struct {
	script *Script
	source Source
}

// NewLoader makes a loader. The scripts of an embedded server have no flags.
func NewLoader(embedded bool) *Loader { return &Loader{embedded: embedded} }

// Load composes a script.
func (l *Loader) Load(from Source) *Script {
	head := "#!lua\n"
	if from.Flags != "" {
		head = "#!lua flags=" + from.Flags + "\n"
	}
	if l.embedded {
		head = ""
	}
	text := head + from.text()
	sum := sha1.Sum([]byte(text))
	s := &Script{
		Name: from.Name, Source: text, SHA: hex.EncodeToString(sum[:]), Mutates: true,
		Sharded: from.Clock != WithoutClock,
	}
	l.made = append(l.made, madeScript{s, from})
	return s
}

// CallFunctions makes calls of the loaded scripts call the functions of a library.
func (l *Loader) CallFunctions(library redisfunc.Library) {
	for _, m := range l.made {
		m.script.Function = library.Function(m.source.function())
	}
}

// Library is the library of the functions of all loaded scripts, each once, in the order in which they were
// loaded.
func (l *Loader) Library(name string) redisfunc.Library {
	var list []redisfunc.Script
	known := map[string]bool{}
	for _, m := range l.made {
		function := m.source.function()
		if known[function] {
			continue
		}
		known[function] = true
		f := redisfunc.Script{Name: function, Source: m.source.text()}
		if m.source.Flags != "" {
			f.Flags = []string{m.source.Flags}
		}
		list = append(list, f)
	}
	return redisfunc.New(name, list)
}
