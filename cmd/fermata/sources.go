package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/client"
)

// everyField stands in the sources of a policy for all fields that are not named.
const everyField = "*"

// sourceText says where the values of a policy came from: the fields of each source. It is empty
// where all are built in, or nothing is known.
func sourceText(sources map[string]string) string {
	rest := sources[everyField]
	fields := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if name != everyField {
			fields[sources[name]] = append(fields[sources[name]], name)
		}
	}
	if len(fields) == 0 {
		if rest == builtinSource {
			return none
		}
		return printable(rest)
	}
	var parts []string
	for _, source := range slices.Sorted(maps.Keys(fields)) {
		parts = append(parts, strings.Join(fields[source], ", ")+" from "+printable(source))
	}
	if rest != "" {
		parts = append(parts, "the rest from "+printable(rest))
	}
	return strings.Join(parts, "; ")
}

// builtinSource is that of values that nobody has set.
const builtinSource = "built-in"

// ownSource is that of values that a job has set itself.
const ownSource = "job"

// sourceOf is where a field's value came from; "" if nothing is known.
func sourceOf(sources map[string]string, field string) string {
	if s, ok := sources[field]; ok {
		return s
	}
	return sources[everyField]
}

// backoffSources are those of the backoff of a job that has one.
func backoffSources(j *client.Job) map[string]string {
	if j.GetSchedule().GetInterval() == nil {
		return nil
	}
	return j.GetBackoffPolicy().GetSources()
}
