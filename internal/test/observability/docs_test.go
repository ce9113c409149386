package observability

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// notHere are metrics that the test's cluster has no cause to have.
var notHere = map[string]string{
	"fermata_audit_export_waiting_records":          "only while an export of the audit is kept",
	"fermata_audit_export_lag_seconds":              "only while an export of the audit is kept",
	"fermata_audit_export_missing_records":          "only while an export of the audit is kept",
	"fermata_access_token_expiry_timestamp_seconds": "only with --access-file, for tokens that end",
	"fermata_access_denied_total":                   "only with --access-file, when somebody is refused",
	"fermata_access_foreign_leases_total":           "only with --access-file",
	"fermata_trace_spans_total":                     "only with --trace-endpoint",
	"fermata_trace_spans_exported_total":            "only with --trace-endpoint",
	"fermata_namespace_jobs":                        "only of namespaces that have a limit",
	"fermata_namespace_jobs_limit":                  "only of namespaces that have a limit",
	"fermata_namespace_job_bytes":                   "only of namespaces that have a limit",
	"fermata_namespace_job_bytes_limit":             "only of namespaces that have a limit",
}

var metricRow = regexp.MustCompile("^\\| `(fermata_[a-z_]+)` \\| (\\w+) \\| (.*?) \\| (.*?) \\| (.*?) \\|$")

// readDocumented reads the tables of docs/metrics.md.
func readDocumented(t *testing.T) map[string]*family {
	t.Helper()
	all := make(map[string]*family)
	for _, line := range readLines(t, root+"/docs/metrics.md") {
		m := metricRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		f := &family{name: m[1], kind: m[2]}
		if m[3] != "—" {
			f.labels = strings.Split(strings.ReplaceAll(m[3], "`", ""), ", ")
		}
		if all[f.name] != nil {
			t.Errorf("docs/metrics.md has %s twice", f.name)
		}
		if m[4] == "" || m[5] == "" {
			t.Errorf("docs/metrics.md describes %s too briefly", f.name)
		}
		all[f.name] = f
	}
	return all
}

// compareDocs compares docs/metrics.md with what was scraped.
func compareDocs(t *testing.T, scraped map[string]*family) {
	docs := readDocumented(t)
	for _, name := range slices.Sorted(maps.Keys(scraped)) {
		f := scraped[name]
		if !strings.HasPrefix(name, "fermata_") {
			continue
		}
		d := docs[name]
		switch {
		case d == nil:
			t.Errorf("docs/metrics.md does not know %s (%s, labels %v): %s", name, f.kind, f.labels, f.help)
		case d.kind != f.kind || !slices.Equal(d.labels, f.labels):
			t.Errorf("%s is a %s with labels %v, docs/metrics.md has %s, %v", name, f.kind, f.labels, d.kind, d.labels)
		case f.help == "":
			t.Errorf("%s has no help", name)
		}
		delete(docs, name)
	}
	for name := range docs {
		if notHere[name] == "" {
			t.Errorf("docs/metrics.md describes %s, which no process has", name)
		}
	}
}
