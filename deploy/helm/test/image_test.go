package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
)

// TestImageOfAPackedChart: a chart that a release has packed runs its release's image by digest; who names a tag, a digest or an image of
// his own gets that.
func TestImageOfAPackedChart(t *testing.T) {
	packed, other := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64)
	plain := mustLoad(t)
	released, metadata := *plain, *plain.Metadata
	metadata.Annotations = maps.Clone(metadata.Annotations)
	if _, ok := metadata.Annotations["fermata.io/image-digest"]; !ok {
		t.Error("there is no place for the digest in Chart.yaml")
	}
	metadata.Annotations["fermata.io/image-digest"] = packed
	released.Metadata = &metadata
	for name, c := range map[string]struct {
		chart        *chart.Chart
		values       string
		node, worker string
	}{
		"of the tree":       {plain, "", "ghcr.io/fermata-io/fermata:v0.1.0", "ghcr.io/fermata-io/fermata:v0.1.0"},
		"packed":            {&released, "", "ghcr.io/fermata-io/fermata@" + packed, "ghcr.io/fermata-io/fermata@" + packed},
		"of a mirror":       {&released, "image: {repository: r.example/f}", "r.example/f@" + packed, "r.example/f@" + packed},
		"by tag":            {&released, "image: {tag: v9}", "ghcr.io/fermata-io/fermata:v9", "ghcr.io/fermata-io/fermata:v9"},
		"by digest":         {&released, "image: {digest: '" + other + "'}", "ghcr.io/fermata-io/fermata@" + other, "ghcr.io/fermata-io/fermata@" + other},
		"a pool by tag":     {&released, "workerDefaults: {image: {tag: v9}}", "ghcr.io/fermata-io/fermata@" + packed, "ghcr.io/fermata-io/fermata:v9"},
		"a pool's own":      {&released, "workerDefaults: {image: {repository: r.example/f, tag: v9}}", "ghcr.io/fermata-io/fermata@" + packed, "r.example/f:v9"},
		"a pool by digest":  {&released, "workerDefaults: {image: {digest: '" + other + "'}}", "ghcr.io/fermata-io/fermata@" + packed, "ghcr.io/fermata-io/fermata@" + other},
		"no notes, no name": {chartWithoutAnnotations(plain), "", "ghcr.io/fermata-io/fermata:v0.1.0", "ghcr.io/fermata-io/fermata:v0.1.0"},
	} {
		files, err := renderChart(c.chart, parse(t, good+c.values))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all := pods(decoded(t, files))
		for component, want := range map[string]string{"scheduler": c.node, "worker": c.worker, "test": c.node} {
			p := all[slices.IndexFunc(all, func(p pod) bool { return p.component == component })]
			if got := p.spec.Containers[0].Image; got != want {
				t.Errorf("%s: the image of %s is %s, want %s", name, component, got, want)
			}
		}
	}
}

func chartWithoutAnnotations(c *chart.Chart) *chart.Chart {
	bare, metadata := *c, *c.Metadata
	metadata.Annotations = nil
	bare.Metadata = &metadata
	return &bare
}
