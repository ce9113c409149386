package importer

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// workerVariables are variables that workers set themselves or never let a job set. A trailing * matches any
// ending. Names are compared without case.
var workerVariables = append([]string{
	"PWD", "OLDPWD", "IFS", "SHELLOPTS", "BASHOPTS", "BASH_FUNC_*", "FERMATA_*", "TRACEPARENT", "TRACESTATE",
}, shellVariables...)

// shellVariables are the workerVariables that a shell can set for its commands with the same effect.
var shellVariables = []string{
	"PATH", "HOME", "LANG", "ENV", "BASH_ENV",
	"LD_*", "DYLD_*", "GCONV_PATH", "GLIBC_TUNABLES", "MALLOC_*", "LOCPATH", "NLSPATH",
	"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK",
}

// secretReference begins a reference that workers replace by a secret, in variables and input only.
const secretReference = "${secret:"

// validReference is a reference in good form.
var validReference = regexp.MustCompile(`\$\{secret:[a-z0-9][a-z0-9._-]{0,62}\}`)

// hasValidReferences reports whether all references to secrets in a text are in good form, and as many as workers take.
func hasValidReferences(text string) bool {
	good := len(validReference.FindAllString(text, -1))
	return good == strings.Count(text, secretReference) && good <= 16
}

// programVariables returns the variables that a job may have. exports are lines for the start of a shell script
// that set variables which workers do not let a payload set. It adds notes on what workers need and on variables
// that are left out.
func programVariables(all map[string]string, shell bool, note func(string)) (env *yamlMapping, exports string) {
	env = newMapping()
	var lines strings.Builder
	var kept, dropped, invalid, unnamed []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch value := all[name]; {
		case !shellName.MatchString(name) || strings.ContainsRune(value, 0):
			invalid = append(invalid, clipText(name, 64))
		case !hasValidReferences(value):
			unnamed = append(unnamed, clipText(name, 64))
		case shell && matchesAny(name, shellVariables) && !strings.Contains(value, secretReference):
			lines.WriteString("export " + name + "=" + quoteShell(value) + "\n")
		case matchesAny(name, workerVariables):
			dropped = append(dropped, clipText(name, 64))
		default:
			kept = append(kept, clipText(name, 64))
			env.setField(name, value)
		}
	}
	if len(invalid) > 0 {
		note(strings.Join(invalid, ", ") + ": left out: the name of a variable has letters, digits and underscores " +
			"only, and its value no NUL byte")
	}
	if len(unnamed) > 0 {
		note(strings.Join(unnamed, ", ") + ": left out, as ${secret: begins the name of a secret here, and no such " +
			"name follows")
	}
	if len(dropped) > 0 {
		note(strings.Join(dropped, ", ") + ": left out, as workers do not let jobs set them; a script of your own " +
			"can, and HOME is their --exec-home")
	}
	if len(kept) == 0 {
		return nil, lines.String()
	}
	note("sets variables: workers need --exec-env " + strings.Join(kept, ","))
	return env, lines.String()
}

func matchesAny(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return patternCovers(pattern,
			strings.ToUpper(name))
	})
}

func patternCovers(pattern, name string) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
}
