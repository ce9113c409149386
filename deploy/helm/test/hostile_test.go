package chart

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

// harmless stands where hostile text is tried.
const harmless = "harmless"

// hostile are texts that leave the place of a value if a template does not quote them.
var hostile = []string{
	"a\n- --force", "a\n--force", "a\r\nb: c", "a: b", "a #b", "# a", "\"", "a\" b: \"c", "'", "a' , b: 'c", "{{ .Release.Name }}", "{{", "}}", "}, b: {c: d", "[a", "a]", "a, b",
	"--force", "-", "- a", "? a", "! a", "!!binary a", "&a", "*a", "| a", ">", "%a", "@a", "`a`", "\\", "a\\nb", "null", "true", "off", "~", "\t", " a ", "a\x00b", "a\u2028b: c", "a\u0085b: c", "a\ufeffb", "$(POD_IP)",
}

// texts that Kubernetes itself reads in arguments and variables are written so that they arrive as they are.
var unexpanded = strings.NewReplacer("$$", "$")

// ownNames are left out: objects' names are cut and are part of others. The schema takes labels of DNS only. Templates
// in extraObjects are executed, which is what they are for.
var ownNames = regexp.MustCompile(`^(nameOverride|fullnameOverride|extraObjects)\b`)

// TestHostileValues: text in a value stays text in the one place that it is for, whatever is in it: what comes out is
// what comes out for harmless text, with the other in its place. The schema, which refuses much of it, is left out. All
// values that take some text at all are tried at once.
func TestHostileValues(t *testing.T) {
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, name := range sets {
		base := set(t, name)
		var free []leaf
		add := func(path []string, value any) {
			if l, ok := leafOf(path, value); ok {
				if _, err := unchecked(c, filled(base, append(free, l), harmless)); err == nil {
					free = append(free, l)
					tried[strings.Join(path, ".")] = true
				}
			}
		}
		leaves(nil, base, add)
		leaves(nil, c.Values, add)
		before, err := trees(c, filled(base, free, harmless))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range hostile {
			after, err := trees(c, filled(base, free, text))
			if err != nil {
				if strings.Contains(err.Error(), "converting YAML") {
					t.Errorf("%s: %q: %v", name, text, err)
				}
				continue // refused
			}
			if want, got := replaced(before, text), replaced(after, ""); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %q: %s", name, text, difference("", want, got))
			}
		}
	}
	for _, want := range []string{"apply.owner", "apply.image", "test.queue", "test.image", "clusterDomain", "tls.certManager.trustDomain", "image.repository", "redis.username", "commonLabels", "ingress.hosts", "scheduler.config", "workers.mail.config.queues"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(tried)), func(at string) bool { return at == want || strings.HasPrefix(at, want+".") }) {
			t.Errorf("%s was not tried", want)
		}
	}
}

// leaf is a value that takes text, and how.
type leaf struct {
	path []string
	hold func(text string) any
}

func leafOf(path []string, value any) (leaf, bool) {
	if ownNames.MatchString(strings.Join(path, ".")) {
		return leaf{}, false
	}
	switch value.(type) {
	case string:
		if strings.HasSuffix(path[len(path)-1], "image") {
			return leaf{path, func(text string) any { return "r:" + text }}, true
		}
		return leaf{path, func(text string) any { return text }}, true
	case []any:
		return leaf{path, func(text string) any { return []any{text} }}, true
	case map[string]any:
		return leaf{path, func(text string) any { return values{"of-" + strings.Join(path, "-"): text} }}, true
	}
	return leaf{}, false
}

func filled(v values, free []leaf, text string) values {
	for _, l := range free {
		v = with(v, l.path, l.hold(text))
	}
	return v
}

// unchecked renders values that the schema has not seen.
func unchecked(c *chart.Chart, v values) (map[string]string, error) {
	all, err := chartutil.ToRenderValuesWithSchemaValidation(c, v, chartutil.ReleaseOptions{Name: "blue", Namespace: "jobs"}, nil, true)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// trees are the objects of a release as Kubernetes would see them, files in ConfigMaps as what they mean.
func trees(c *chart.Chart, v values) (map[string]any, error) {
	files, err := unchecked(c, v)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for name, file := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		var documents []any
		for text := range strings.SplitSeq("\n"+file, "\n---") {
			var document any
			if err := yaml.UnmarshalStrict([]byte(text), &document); err != nil {
				return nil, err
			}
			documents = append(documents, opened(document))
		}
		out[name] = documents
	}
	return out, nil
}

// opened decodes files of ConfigMaps.
func opened(document any) any {
	object, _ := document.(map[string]any)
	if data, ok := object["data"].(map[string]any); ok {
		for key, value := range data {
			var inner any
			if text, ok := value.(string); ok && strings.HasSuffix(key, ".yaml") && yaml.UnmarshalStrict([]byte(text), &inner) == nil {
				data[key] = inner
			}
		}
	}
	return document
}

var computed = regexp.MustCompile(`^(these-)?[0-9a-f]{10}([0-9a-f]{54})?$`)

// replaced is a tree with another text in the place of the harmless one, without what is computed from texts.
func replaced(tree any, text string) any {
	switch x := tree.(type) {
	case string:
		if computed.MatchString(x) {
			return "computed"
		}
		return unexpanded.Replace(strings.ReplaceAll(x, harmless, text))
	case []any:
		out := make([]any, len(x))
		for i, item := range x {
			out[i] = replaced(item, text)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for key, value := range x {
			if computed.MatchString(key) {
				key = "computed"
			}
			out[key] = replaced(value, text)
		}
		return out
	}
	return tree
}

// difference names the first place where two trees differ.
func difference(at string, want, got any) string {
	w, isMap := want.(map[string]any)
	g, both := got.(map[string]any)
	if isMap && both {
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if !reflect.DeepEqual(w[key], g[key]) {
				return difference(at+"."+key, w[key], g[key])
			}
		}
	}
	ws, isList := want.([]any)
	gs, both := got.([]any)
	if isList && both && len(ws) == len(gs) {
		for i := range ws {
			if !reflect.DeepEqual(ws[i], gs[i]) {
				return difference(at+"[]", ws[i], gs[i])
			}
		}
	}
	wanted, _ := json.Marshal(want)
	have, _ := json.Marshal(got)
	return at + "\n got " + string(have) + "\nwant " + string(wanted)
}
