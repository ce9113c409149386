package config

import (
	"strings"

	"github.com/spf13/pflag"
)

// sourceKey is the annotation of a flag with the source of its value.
const sourceKey = "fermata_source"

func setSource(f *pflag.Flag, source string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[sourceKey] = []string{source}
}

// SourceOf returns where the value of a flag comes from: "flag", "environment variable X", "context X", "file X" or
// "default".
func SourceOf(f *pflag.Flag) string {
	switch source := f.Annotations[sourceKey]; {
	case !f.Changed:
		return "default"
	case len(source) > 0:
		return source[0]
	}
	return "flag"
}

// fromEnvironment reports whether a flag has its value from the environment.
func fromEnvironment(f *pflag.Flag) bool {
	return strings.HasPrefix(SourceOf(f), "environment variable ")
}
