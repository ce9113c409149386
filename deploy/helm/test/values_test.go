package chart

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// others are values of the same kind as a default.
func others(value any) (all []any) {
	switch v := value.(type) {
	case bool:
		return []any{!v}
	case float64:
		all = []any{v + 1, v + 1000}
	case []any:
		all = []any{[]any{"a"}, []any{values{"name": "a"}}, []any{values{"apiVersion": "v1", "kind": "ConfigMap", "metadata": values{"name": "a"}}}}
	case map[string]any:
		all = []any{values{"a": "b"}, values{"name": "a"}, values{"replicas": 7.0}, values{"a": values{"handler": "h"}}, values{"a": values{"rate": 1.0}}}
	case string:
		for _, text := range []string{"other", "7m", "IPv6"} {
			all = append(all, text)
		}
	}
	return all
}

// leaves calls do with the path of each default that is no mapping, or an empty one.
func leaves(at []string, value any, do func(path []string, value any)) {
	m, ok := value.(map[string]any)
	if !ok || len(m) == 0 && len(at) > 0 {
		do(slices.Clone(at), value)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		leaves(append(at, key), m[key], do)
	}
}

// with is a copy of values in which one is another.
func with(v values, path []string, other any) values {
	out := maps.Clone(v)
	if out == nil {
		out = values{}
	}
	if len(path) == 1 {
		out[path[0]] = other
		return out
	}
	below, _ := out[path[0]].(map[string]any)
	out[path[0]] = with(below, path[1:], other)
	return out
}

// outcome is what the templates make of values, whatever the schema would say: text, or why there is none.
func outcome(t *testing.T, c *chart.Chart, v values) string {
	t.Helper()
	all, err := chartutil.ToRenderValuesWithSchemaValidation(c, v, chartutil.ReleaseOptions{Name: "blue", Namespace: "jobs"}, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text.WriteString(files[name])
	}
	return text.String()
}

// TestEveryValueIsRead: another value makes another release, with one of the sets at least, or is refused by the
// templates. What nothing reads is not offered.
func TestEveryValueIsRead(t *testing.T) {
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var bases []values
	for _, more := range []string{
		"redis: {url: redis://r}\nnetworkPolicy: {egress: {to: [{}]}, metricsFrom: [{}]}\nworkerDefaults: {keda: {enabled: true}}\nmonitoring: {rules: {enabled: true}}",
		"redis: {existingSecret: p, dev: {enabled: true}}\nworkerDefaults: {autoscaling: {enabled: true}}\ngateway: {enabled: true}",
	} {
		bases = append(bases, parse(t, "insecure: true\n"+more))
	}
	for _, name := range sets {
		bases = append(bases, set(t, name))
	}
	bases = append(bases, parse(t, good+"monitoring: {dashboards: {enabled: true}}")) // last, as they are long
	before := make([]string, len(bases))
	for i, base := range bases {
		before[i] = outcome(t, c, base)
	}
	n := 0
	leaves(nil, c.Values, func(path []string, value any) {
		n++
		for i, base := range bases {
			for _, other := range others(value) {
				if outcome(t, c, with(base, path, other)) != before[i] {
					return
				}
			}
		}
		t.Errorf("%s makes no difference", strings.Join(path, "."))
	})
	if n < 200 {
		t.Errorf("%d values were tried", n)
	}
}

// TestEveryValueHasADefault: what the schema takes is in values.yaml, and so in the README.
func TestEveryValueHasADefault(t *testing.T) {
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(c.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	found := missing(schema, schema, c.Values, "")
	if want := []string{"global"}; !slices.Equal(found, want) {
		t.Errorf("the schema takes %q, and values.yaml does not have them; want %q, of parent charts", found, want)
	}
	all := missingIn(values{"a": values{"b": 1.0}}, `{"properties": {"a": {"$ref": "#/definitions/d"}, "c": {}}, "definitions": {"d": {"properties": {"b": {}, "e": {}}}}}`)
	if !reflect.DeepEqual(all, []string{"a.e", "c"}) {
		t.Errorf("found %q", all)
	}
}

func missingIn(v values, schema string) []string {
	var s map[string]any
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		panic(err)
	}
	return missing(s, s, v, "")
}

// missing lists properties without a default. Flags have those of the binaries, resources are Kubernetes', and an empty
// mapping is described as a whole.
func missing(root, schema map[string]any, v values, at string) (all []string) {
	if ref, ok := schema["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/definitions/")
		if strings.HasSuffix(name, "Config") || name == "resources" {
			return nil
		}
		schema = root["definitions"].(map[string]any)[name].(map[string]any)
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		value, ok := v[key]
		below, _ := value.(map[string]any)
		switch {
		case !ok:
			all = append(all, at+key)
		case len(below) > 0:
			all = append(all, missing(root, properties[key].(map[string]any), below, at+key+".")...)
		}
	}
	return all
}
