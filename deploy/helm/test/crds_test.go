package chart

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// definition is one version of a custom resource, as an API server that has its CRD knows it.
type definition struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
}

// definitions are those of the CRDs that are at hand: KEDA's, whose Go types would bring all of KEDA along, and the
// Prometheus operator's, whose module of types has none, from testdata/crds; the others from the modules of their
// types.
var definitions = sync.OnceValues(func() (map[runtimeschema.GroupVersionKind]definition, error) {
	dirs := []string{"testdata/crds"}
	for module, below := range map[string]string{
		"sigs.k8s.io/gateway-api": "config/crd/standard", "github.com/cert-manager/cert-manager": "deploy/crds",
	} {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", module, err)
		}
		dirs = append(dirs, filepath.Join(strings.TrimSpace(string(out)), below))
	}
	all := map[runtimeschema.GroupVersionKind]definition{}
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if err := define(all, path); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return all, nil
})

func define(all map[runtimeschema.GroupVersionKind]definition, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil || crd.Kind != "CustomResourceDefinition" {
		return err
	}
	for _, v := range crd.Spec.Versions {
		if v.Schema == nil {
			continue
		}
		var internal apiextensions.JSONSchemaProps
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
			return err
		}
		structural, err := schema.NewStructural(&internal)
		if err != nil {
			return err
		}
		validator, _, err := validation.NewSchemaValidator(&internal)
		if err != nil {
			return err
		}
		all[runtimeschema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}] = definition{structural, validator}
	}
	return nil
}

// faultsByCRD holds an object against its CRD, if that is at hand: unknown fields, types, enumerations, patterns, what
// is required.
func faultsByCRD(t *testing.T, text string) (faults []string, o *unstructured.Unstructured) {
	t.Helper()
	known, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	group := apiGroup.FindStringSubmatch(text)
	if group == nil || !slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(k runtimeschema.GroupVersionKind) bool { return k.Group == group[1] }) {
		return nil, nil
	}
	o = &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
		return []string{err.Error()}, o
	}
	d, ok := known[o.GroupVersionKind()]
	if !ok {
		return nil, nil
	}
	for _, e := range validation.ValidateCustomResource(nil, o.Object, d.validator) {
		faults = append(faults, e.Error())
	}
	for _, path := range pruning.PruneWithOptions(o.DeepCopy().Object, d.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		faults = append(faults, "unknown field "+path)
	}
	return faults, o
}

// apiGroup finds a group without reading the rest, as most objects have no CRD.
var apiGroup = regexp.MustCompile(`(?m)^apiVersion: ([^/\s]+)/`)

// TestFaultsAreSeenByCRD: what an API server would refuse, or drop in silence, is a fault.
func TestFaultsAreSeenByCRD(t *testing.T) {
	const scaled = "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: a}\nspec:\n  scaleTargetRef: {name: b}\n  triggers:\n  - {type: external-push, metadata: {a: b}}\n"
	for name, c := range map[string]struct{ text, want string }{
		"good":          {scaled, ""},
		"misspelt":      {scaled + "  maxReplicas: 3\n", "unknown field spec.maxReplicas"},
		"a number":      {strings.Replace(scaled, "a: b", "a: 5", 1), "spec.triggers[0].metadata.a"},
		"no target":     {strings.Replace(scaled, "scaleTargetRef: {name: b}", "pollingInterval: 1", 1), "spec.scaleTargetRef"},
		"no word":       {"apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: a}\nspec: {secretName: a, issuerRef: {name: i}, usages: [serving]}\n", "spec.usages[0]"},
		"no unit":       {"apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: {name: a}\nspec: {selector: {}, podMetricsEndpoints: [{interval: '15'}]}\n", "spec.podMetricsEndpoints[0].interval"},
		"no time":       {"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: a}\nspec: {groups: [{name: a, rules: [{alert: a, expr: up, for: five minutes}]}]}\n", "spec.groups[0].rules[0].for"},
		"no endpoints":  {"apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: a}\nspec: {selector: {}}\n", "spec.endpoints"},
		"not a gateway": {"apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {name: a}\nspec: {hostnames: ['*']}\n", "spec.hostnames[0]"},
	} {
		faults, o := faultsByCRD(t, c.text)
		if o == nil {
			t.Errorf("%s: the CRD is not at hand", name)
		}
		if got := strings.Join(faults, "; "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
