package chart

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const marker = "<!-- values: made from values.yaml by make chart-update -->\n"

// TestReadmeIsCurrent: the table of the README is what values.yaml says, and every value says what it is.
func TestReadmeIsCurrent(t *testing.T) {
	text, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	rows, silent := describe("", document.Content[0], false)
	for _, key := range silent {
		t.Errorf("values.yaml: %s has no comment that begins with --", key)
	}
	path := chartDir + "/README.md"
	readme, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(readme), marker)
	if !found {
		t.Fatalf("%s lacks the line %s", path, marker)
	}
	golden(t, path, head+marker+"| value | default | meaning |\n| --- | --- | --- |\n"+strings.Join(rows, ""))
}

// describe makes a row of each value that has a comment, and lists the keys that neither have one nor are within one that has.
func describe(prefix string, n *yaml.Node, within bool) (rows, silent []string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := strings.TrimPrefix(prefix+"."+key.Value, ".")
		_, meaning, described := strings.Cut(key.HeadComment, "# -- ")
		if described {
			meaning = strings.Join(strings.Fields(strings.ReplaceAll(meaning, "\n#", " ")), " ")
			rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s |\n", name, brief(value), strings.ReplaceAll(meaning, "|", `\|`)))
		}
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			below, quiet := describe(name, value, within || described)
			rows, silent = append(rows, below...), append(silent, quiet...)
		} else if !described && !within {
			silent = append(silent, name)
		}
	}
	return rows, silent
}

// brief is a default on one line.
func brief(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.ScalarNode && n.Value == "":
		return `""`
	case n.Kind == yaml.ScalarNode:
		return n.Value
	case n.Kind == yaml.SequenceNode:
		var items []string
		for _, item := range n.Content {
			items = append(items, brief(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	var pairs []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		pairs = append(pairs, n.Content[i].Value+": "+brief(n.Content[i+1]))
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}
