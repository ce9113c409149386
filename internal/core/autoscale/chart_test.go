package autoscale

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestTriggersOfTheChartAreAccepted parses the triggers of the rendered Helm chart.
func TestTriggersOfTheChartAreAccepted(t *testing.T) {
	paths, err := filepath.Glob("../../../deploy/helm/test/testdata/*.golden.yaml")
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
				if got, faults := Parse(trigger.Metadata); len(faults) > 0 || len(got.Metrics(Demand{})) != 1 {
					t.Errorf("%s: %v: %+v %v", path, trigger.Metadata, got, faults)
				}
			}
		}
	}
	if seen < 3 {
		t.Errorf("%d triggers found", seen)
	}
}

// TestChartAcceptsTheTriggersThatNodesAccept holds the bounds of the chart's schema against these. Spans are bounded by
// its templates.
func TestChartAcceptsTheTriggersThatNodesAccept(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/helm/fermata/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Definitions struct {
			Keda struct {
				Properties struct {
					TargetBacklog struct {
						AnyOf []struct{ Minimum, Maximum float64 }
					}
					ActivationBacklog struct{ Minimum, Maximum float64 }
				}
			}
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	keda := schema.Definitions.Keda.Properties
	if each := keda.TargetBacklog.AnyOf; len(each) != 2 || each[1].Minimum != MinTarget || each[1].Maximum != MaxTarget {
		t.Errorf("targetBacklog %+v", each)
	}
	if keda.ActivationBacklog.Minimum != 0 || keda.ActivationBacklog.Maximum != MaxTarget {
		t.Errorf("activationBacklog %+v", keda.ActivationBacklog)
	}
}
