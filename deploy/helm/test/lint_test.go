package chart

import (
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// TestLint is helm lint --strict with each set of values.
func TestLint(t *testing.T) {
	version, err := chartutil.ParseKubeVersion("v1.34.2")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sets {
		for _, m := range lint.AllWithKubeVersion(chartDir, set(t, name), "jobs", version).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}
