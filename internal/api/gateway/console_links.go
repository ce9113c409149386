package gateway

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// ConsoleLinks are templates of URLs, to which the console leads from a run. In each of them, {trace_id},
// {correlation_id}, {namespace}, {job} and {run} stand for what the run has, percent-encoded. "" is no link.
type ConsoleLinks struct {
	// Trace leads to the trace of a run.
	Trace string `json:"trace,omitempty"`
	// Logs leads to the log lines of a run.
	Logs string `json:"logs,omitempty"`
}

var (
	linkFields     = []string{"{trace_id}", "{correlation_id}", "{namespace}", "{job}", "{run}"}
	linkFieldShape = regexp.MustCompile(`\{[^{}]*\}`)
)

// CheckLinkTemplate refuses a template of a URL that a browser should not follow, that names unknown fields, or that is
// the same for all runs. The fields stand in its path, query or fragment: what a run has does not choose the host.
func CheckLinkTemplate(template string) error {
	found := linkFieldShape.FindAllString(template, -1)
	for _, field := range found {
		if !slices.Contains(linkFields, field) {
			return fmt.Errorf("%s is unknown, want some of %s", field, strings.Join(linkFields, ", "))
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("has none of %s", strings.Join(linkFields, ", "))
	}
	u, err := url.Parse(linkFieldShape.ReplaceAllString(template, "x"))
	if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "https" && u.Scheme != "http") {
		return fmt.Errorf("is no URL such as https://traces.example.org/trace/{trace_id}")
	}
	if origin, _, _ := strings.Cut(strings.TrimPrefix(template, u.Scheme+"://"), "/"); strings.Contains(origin, "{") {
		return fmt.Errorf("has a field in its host")
	}
	return nil
}
