package scaling

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestTheChartsTriggersAreAccepted reads what the Helm chart, rendered, has KEDA say.
func TestTheChartsTriggersAreAccepted(t *testing.T) {
	paths, err := filepath.Glob("../../deploy/helm/test/testdata/*.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			if !strings.Contains(document, "kind: ScaledObject") {
				continue
			}
			var o struct {
				Spec struct {
					Triggers []struct {
						Type     string
						Metadata map[string]string
					}
				}
			}
			if err := yaml.Unmarshal([]byte(document), &o); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			for _, trigger := range o.Spec.Triggers {
				if trigger.Type != "external-push" {
					continue
				}
				seen++
				if got, faults := Parse(trigger.Metadata); len(faults) > 0 || len(got.Metrics(Size{})) != 1 {
					t.Errorf("%s: %v: %+v %v", path, trigger.Metadata, got, faults)
				}
			}
		}
	}
	if seen < 3 {
		t.Errorf("%d triggers found", seen)
	}
}
