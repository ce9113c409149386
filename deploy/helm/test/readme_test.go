package chart

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const marker = "<!-- values: made from values.yaml by make chart-update -->\n"

// TestReadmeIsCurrent: the tables of the README match values.yaml, and every value has a description.
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
	golden(t, path, head+marker+tabulate(rows))
}

// tabulate makes one table of the rows without a group, and one table of each group, under its name.
func tabulate(rows []row) string {
	const header = "| value | default | meaning |\n| --- | --- | --- |\n"
	general := header
	var groups strings.Builder
	last := ""
	for _, r := range rows {
		group, _, grouped := strings.Cut(r.name, ".")
		if !grouped {
			general += r.String()
			continue
		}
		if group != last {
			groups.WriteString("\n### " + group + "\n\n" + header)
			last = group
		}
		groups.WriteString(r.String())
	}
	return "\n### General\n\n" + general + groups.String()
}

// row is a value, its default and its meaning.
type row struct{ name, brief, meaning string }

func (r row) String() string {
	return fmt.Sprintf("| `%s` | `%s` | %s |\n", r.name, r.brief, r.meaning)
}

// describe makes a row of each value that has a comment. It also lists the keys that have neither a comment nor a
// described parent.
func describe(prefix string, n *yaml.Node, within bool) (rows []row, silent []string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := strings.TrimPrefix(prefix+"."+key.Value, ".")
		_, meaning, described := strings.Cut(key.HeadComment, "# -- ")
		if described {
			meaning = strings.Join(strings.Fields(strings.ReplaceAll(meaning, "\n#", " ")), " ")
			rows = append(rows, row{name, brief(value), strings.ReplaceAll(meaning, "|", `\|`)})
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
