package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
)

// TestImageOfAPackedChart: a chart that a release has packed runs its release's image by digest; who names a tag, a
// digest or an image of his own gets that.
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
		all := decoded(t, files)
		for component, want := range map[string]string{"scheduler": c.node, "worker": c.worker, "test": c.node} {
			if got := firstPodOf(all, component).spec.Containers[0].Image; got != want {
				t.Errorf("%s: the image of %s is %s, want %s", name, component, got, want)
			}
		}
	}
}

// TestRedisImageOfATrial: the chart brings a digest for its own repository and tag; another repository or tag never
// gets it.
func TestRedisImageOfATrial(t *testing.T) {
	own := "sha256:" + strings.Repeat("c", 64)
	repository, digest, _ := strings.Cut(mustLoad(t).Metadata.Annotations["fermata.io/redis-image"], "@")
	repository, tag, _ := strings.Cut(repository, ":")
	shipped := mustLoad(t).Values["redis"].(values)["dev"].(values)["image"].(values)
	if shipped["repository"] != repository || shipped["tag"] != tag || len(digest) != len(own) {
		t.Fatalf("Chart.yaml has the digest %q of %s:%s, and values.yaml has %v", digest, repository, tag, shipped)
	}
	for image, want := range map[string]string{
		"{}":                                repository + "@" + digest,
		"{tag: 8.2.2-alpine}":               repository + ":8.2.2-alpine",
		"{tag: 7.4.6-alpine3.21}":           repository + ":7.4.6-alpine3.21",
		"{repository: r.example/redis}":     "r.example/redis:" + tag,
		"{digest: '" + own + "'}":           repository + "@" + own,
		"{tag: '8', digest: '" + own + "'}": repository + "@" + own,
	} {
		files, err := render(parse(t, "insecure: true\nredis: {existingSecret: p, dev: {enabled: true, image: "+image+"}}"))
		if err != nil {
			t.Fatalf("%s: %v", image, err)
		}
		if got := firstPodOf(decoded(t, files), "redis").spec.Containers[0].Image; got != want {
			t.Errorf("%s: the image is %s, want %s", image, got, want)
		}
		warned := strings.Contains(files["fermata/templates/NOTES.txt"], "The Redis image has a tag but no digest")
		if byTag := !strings.Contains(want, "@"); warned != byTag {
			t.Errorf("%s: the notes warn of a tag: %v, want %v", image, warned, byTag)
		}
	}
}

// TestImagesAreNamedByDigest: a release that names its own image by digest runs nothing by a tag.
func TestImagesAreNamedByDigest(t *testing.T) {
	for _, name := range []string{"production", "trying"} {
		v := with(set(t, name), []string{"image"}, values{"digest": "sha256:" + strings.Repeat("1", 64)})
		for _, p := range pods(objects(t, v)) {
			for _, c := range p.spec.Containers {
				if !strings.Contains(c.Image, "@sha256:") {
					t.Errorf("%s: %s runs %s", name, p.name, c.Image)
				}
			}
		}
	}
}

// firstPodOf is the first pod of a component.
func firstPodOf(all []object, component string) pod {
	found := pods(all)
	return found[slices.IndexFunc(found, func(p pod) bool { return p.component == component })]
}

func chartWithoutAnnotations(c *chart.Chart) *chart.Chart {
	bare, metadata := *c, *c.Metadata
	metadata.Annotations = nil
	bare.Metadata = &metadata
	return &bare
}
