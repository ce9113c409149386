package importer

import (
	"maps"
	"slices"
	"strings"
)

// workerVariables are those that workers set themselves or never let a job set. A * at
// the end is any ending; letters count in either case.
var workerVariables = []string{
	"PATH", "HOME", "LANG", "PWD", "OLDPWD", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "BASH_FUNC_*", "FERMATA_*", "TRACEPARENT", "TRACESTATE",
	"LD_*", "DYLD_*", "GCONV_PATH", "GLIBC_TUNABLES", "MALLOC_*", "LOCPATH", "NLSPATH",
	"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK",
}

// programVariables are those that a job may have. It notes what workers need for them, and
// which are left out.
func programVariables(all map[string]string, note func(string)) *mapping {
	env := newMapping()
	var kept, dropped []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.ContainsFunc(workerVariables, func(pattern string) bool { return covers(pattern, strings.ToUpper(name)) }) {
			dropped = append(dropped, clip(name, 64))
			continue
		}
		kept = append(kept, clip(name, 64))
		env.set(name, all[name])
	}
	if len(dropped) > 0 {
		note(strings.Join(dropped, ", ") + ": left out, as workers do not let jobs set them; a script of your own can, and HOME is their --exec-home")
	}
	if len(kept) == 0 {
		return nil
	}
	note("sets variables: workers need --exec-env " + strings.Join(kept, ","))
	return env
}

func covers(pattern, name string) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
}
