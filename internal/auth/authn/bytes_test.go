package authn

import "testing"

// TestLimitsOfBytes: a number of bytes may have a unit, and the first entry that names a
// namespace counts, which says nothing of the limit that it leaves out.
func TestLimitsOfBytes(t *testing.T) {
	f, err := decodeFile([]byte("rules: [{subjects: [\"*\"], role: viewer, namespaces: [a]}]\nnamespaces: [{names: " +
		"[a], job-bytes: 64MiB}, {names: [b], job-bytes: 7}, {names: [c], job-bytes: 0}, {names: [d], jobs: 5}, " +
		"{names: [\"*\"], jobs: 1, job-bytes: 1KiB}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.buildPolicy()
	if err != nil {
		t.Fatal(err)
	}
	for namespace, want := range map[string]int{"a": 64 << 20, "b": 7, "c": 0, "d": -1, "e": 1 << 10} {
		n, ok := p.JobBytesLimit(namespace)
		if ok != (want >= 0) || ok && n != want {
			t.Errorf("%s: %d, %t", namespace, n, ok)
		}
	}
	if _, ok := p.JobsLimit("a"); ok || !p.LimitsJobBytes() || !p.LimitsJobs() {
		t.Error("an entry of bytes says something of the number of jobs, or the limits are not known")
	}
}
