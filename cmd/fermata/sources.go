package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/client"
)

// allFields stands in the sources of a policy for all fields that are not named.
const allFields = "*"

// sourceText says where the values of a policy came from: the fields of each source. It is empty
// where all are built in, or nothing is known.
func sourceText(sources map[string]string) string {
	rest := sources[allFields]
	fields := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if name != allFields {
			fields[sources[name]] = append(fields[sources[name]], name)
		}
	}
	if len(fields) == 0 {
		if rest == builtinSourceName {
			return noValue
		}
		return printableText(rest)
	}
	var parts []string
	for _, source := range slices.Sorted(maps.Keys(fields)) {
		parts = append(parts, strings.Join(fields[source], ", ")+" from "+printableText(source))
	}
	if rest != "" {
		parts = append(parts, "the rest from "+printableText(rest))
	}
	return strings.Join(parts, "; ")
}

// builtinSourceName is that of values that nobody has set.
const builtinSourceName = "built-in"

// jobSourceName is that of values that a job has set itself.
const jobSourceName = "job"

// sourceOf is where a field's value came from; "" if nothing is known.
func sourceOf(sources map[string]string, field string) string {
	if s, ok := sources[field]; ok {
		return s
	}
	return sources[allFields]
}

// backoffSources are those of the backoff of a job that has one.
func backoffSources(j *client.Job) map[string]string {
	if j.GetSchedule().GetInterval() == nil {
		return nil
	}
	return j.GetBackoffPolicy().GetSources()
}
