package yamldoc

import (
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestJSONIsReadAsJSON: all of JSON is read, also what the YAML library refuses.
func TestJSONIsReadAsJSON(t *testing.T) {
	r := NewReader([]byte("{\"a\": \"\\ud83d\\ude80 https:\\/\\/e\",\n\t\"b\": [1, 2.5, true, null, \"yes\", \"1\", {}],\n\"<<\": {\"c\": -1e3}}\n[\"x\"]\n"), &Budget{})
	node, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := node.Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": "🚀 https://e", "b": []any{1, 2.5, true, nil, "yes", "1", map[string]any{}}, "<<": map[string]any{"c": -1000.0}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
	if b := node.Content[0].Content[2]; b.Value != "b" || b.Line != 2 || node.Line != 1 {
		t.Errorf("%q is at line %d", b.Value, b.Line)
	}
	if node, err = r.Next(); err != nil || node.Line != 4 || node.Content[0].Kind != yaml.SequenceNode {
		t.Errorf("second value: %+v, %v", node, err)
	}
	if _, err = r.Next(); !Ended(err) {
		t.Errorf("at the end: %v", err)
	}
}

// TestBoundsOfJSON: the bounds are those of YAML.
func TestBoundsOfJSON(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000):   "",
		strings.Repeat("[", 10_100) + strings.Repeat("]", 10_100): "",
		"[" + strings.Repeat("1,", MaxMarks+1) + "1]":             "commas and line breaks",
		"[\"" + strings.Repeat("x", MaxDocument+1) + "\"]":        "stands for more than 32 MiB",
		"{\"a\": 1, \"a\": 2}":                                    "",
	} {
		_, err := read(text, &Budget{})
		if len(text) == 20_200 {
			if err == nil {
				t.Error("10,100 levels were read")
			}
			continue
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
	var value any
	node, err := NewReader([]byte(`{"a": 1, "a": 2}`), &Budget{}).Next()
	if err != nil || node.Decode(&value) == nil {
		t.Errorf("a key that is there twice was read: %v, %v", value, err)
	}
}

// TestFlowYAMLIsNotJSON: YAML that looks like JSON stays YAML.
func TestFlowYAMLIsNotJSON(t *testing.T) {
	for _, text := range []string{"{a: b}", "[a, 'b']", "{\"a\": 1} # x", "{\"a\": 1}\n---\n{\"b\": 1}"} {
		if _, err := read(text, &Budget{}); err != nil || isJSON([]byte(text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
