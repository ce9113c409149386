package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/client"
)

// allFields is the key for all other fields in the sources of a policy.
const allFields = "*"

// sourceText returns the sources of a policy's values, with the fields of each. It is empty if all are built in
// or the sources are unknown.
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

// builtinSourceName is the source of values that were not set.
const builtinSourceName = "built-in"

// jobSourceName is the source of values that the job itself sets.
const jobSourceName = "job"

// sourceOf is where a field's value came from; "" if nothing is known.
func sourceOf(sources map[string]string, field string) string {
	if s, ok := sources[field]; ok {
		return s
	}
	return sources[allFields]
}

// backoffSources returns the sources of the backoff of a job that has one.
func backoffSources(j *client.Job) map[string]string {
	if j.GetSchedule().GetInterval() == nil {
		return nil
	}
	return j.GetBackoffPolicy().GetSources()
}
