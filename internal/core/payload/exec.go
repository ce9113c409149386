package payload

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// Exec is the run of a program that a payload of the handler exec describes.
type Exec struct {
	Argv  []string          `json:"argv"`
	Env   map[string]string `json:"env"`
	Dir   string            `json:"dir"`
	Stdin string            `json:"stdin"`
}

// reservedVariables are variables that no payload may set: the worker's own, and those that control the dynamic
// loader and Go's runtime, which starts the supervisor. A * at the end matches any ending.
var reservedVariables = []string{
	"PATH", "HOME", "LANG", "PWD", "OLDPWD", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "BASH_FUNC_*",
	"FERMATA_*", "TRACEPARENT", "TRACESTATE",
	"LD_*", "DYLD_*", "GCONV_PATH", "GLIBC_TUNABLES", "MALLOC_*", "LOCPATH", "NLSPATH",
	"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK",
}

// ReservedVariables returns the names of variables that no payload may set, as [IsCovered] takes them.
func ReservedVariables() []string { return slices.Clone(reservedVariables) }

// IsReservedVariable reports whether no worker lets a payload set a variable. Letters count in either case.
func IsReservedVariable(name string) bool { return IsCovered(name, reservedVariables) }

// IsCovered reports whether a variable has one of the names given. A * at the end of one is any ending, at the
// beginning any beginning; letters count in either case.
func IsCovered(name string, patterns []string) bool {
	upper := strings.ToUpper(name)
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, isPrefix := strings.CutSuffix(p, "*")
		suffix, isSuffix := strings.CutPrefix(p, "*")
		return upper == p || isPrefix && strings.HasPrefix(upper, prefix) || isSuffix &&
			strings.HasSuffix(upper, suffix)
	})
}

// IsVariable reports whether a variable may have a name.
func IsVariable(name string) bool {
	return name != "" && (name[0] < '0' || name[0] > '9') && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	}) < 0
}

// ParseExec reads a payload of the handler exec.
func ParseExec(text []byte) (*Exec, error) {
	e, faults := parseExec(text)
	return e, faults.orNil()
}

// checkExec also refuses what every worker refuses, whatever its settings.
func checkExec(text []byte) FieldErrors {
	e, faults := parseExec(text)
	if e == nil {
		return faults
	}
	o := &objectReader{faults: faults}
	if len(e.Argv) > 0 && e.Argv[0] == "" && len(faults) == 0 {
		o.addFault(elementPath("argv", 0), "is empty, want the path of a program")
	}
	if len(e.Argv) > 0 && e.Argv[0] != "" && (!path.IsAbs(e.Argv[0]) || path.Clean(e.Argv[0]) != e.Argv[0]) {
		o.addFault(elementPath("argv", 0), "is not a clean absolute path: workers look for no programs in PATH, "+
			"and allow them by their paths")
	}
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		field := entryPath("env", name)
		if IsReservedVariable(name) {
			o.addFault(field, "cannot be set: it is the worker's, or steers the loader of programs")
		}
		if fault := checkReferences(e.Env[name]); fault != "" {
			o.addFault(field, fault)
		}
	}
	if fault := checkReferences(e.Stdin); fault != "" {
		o.addFault("stdin", fault)
	}
	return o.faults
}

func parseExec(text []byte) (*Exec, FieldErrors) {
	const like = `["/usr/bin/printf", "hello"]`
	o := readObject(text, `{"argv": `+like+`}`)
	if !o.isReadable() {
		return nil, o.faults
	}
	e := &Exec{Argv: o.readList("argv", like), Env: o.readTexts("env"), Dir: o.readText("dir"),
		Stdin: o.readText("stdin")}
	e.checkArguments(o)
	e.checkVariables(o)
	if e.Dir != "" && (!path.IsAbs(e.Dir) || strings.ContainsRune(e.Dir, 0)) {
		o.addFault("dir", "is not an absolute path")
	}
	o.refuseUnread()
	return e, o.faults
}

func (e *Exec) checkArguments(o *objectReader) {
	if len(e.Argv) == 0 && !slices.ContainsFunc(o.faults, func(f FieldError) bool { return f.Field == "argv" }) {
		o.addFault("argv", "is empty")
	}
	for i, a := range e.Argv {
		if strings.ContainsRune(a, 0) {
			o.addFault(elementPath("argv", i), "holds a NUL byte")
		}
		if HasReference(a) {
			o.addFault(elementPath("argv", i), "has a reference to a secret, which may stand in env and stdin only")
		}
	}
}

func (e *Exec) checkVariables(o *objectReader) {
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		if !IsVariable(name) {
			o.addFault(entryPath("env", name), "is not the name of a variable")
		}
		if strings.ContainsRune(e.Env[name], 0) {
			o.addFault(entryPath("env", name), "holds a NUL byte")
		}
	}
}
