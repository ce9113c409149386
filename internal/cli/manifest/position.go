package manifest

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// nodePlace is where something was read.
type nodePlace struct {
	file string
	node *yaml.Node
}

func (p nodePlace) faultAt(path, text string) FileError {
	at := p.positionAt(path)
	return FileError{File: p.file, Line: at.line, Column: at.column, Field: printableText(path), Text: printableText(text)}
}

// position is a line and a column in a file, both from 1; column 0 is unknown.
type position struct{ line, column int }

func positionOf(node *yaml.Node) position { return position{max(1, node.Line), node.Column} }

// lineAt returns the line of a field, or of its nearest existing parent.
func (p nodePlace) lineAt(path string) int { return p.positionAt(path).line }

// positionAt returns the position of a field's name, or of its nearest existing parent.
func (p nodePlace) positionAt(path string) position {
	if p.node == nil {
		return position{line: 1}
	}
	found, node := positionOf(p.node), p.node
	for i, name := range splitPath(path) {
		next, at := childNode(node, name)
		if next == nil && i == 0 {
			for _, other := range shownInstead[name] {
				next, at = childNode(node, other)
				if next != nil {
					break
				}
			}
		}
		if next == nil {
			break
		}
		found, node = at, next
	}
	return found
}

// shownInstead has the fields of a file that set a field of the API.
var shownInstead = map[string][]string{
	"handler": {"http", "exec"}, "payload": {"http", "exec", "payload_text"}, "id": {"name"}, "job_id": {"id", "name"},
}

// findNode returns the node of a path, nil if there is none.
func (p nodePlace) findNode(path string) *yaml.Node {
	node := p.node
	for _, name := range splitPath(path) {
		node, _ = childNode(node, name)
		if node == nil {
			return nil
		}
	}
	return node
}

// maxMerges bounds how deep mappings are merged into others ("<<").
const maxMerges = 16

// childNode is a field or an element of a node, and its position: that of its key.
func childNode(node *yaml.Node, name string) (*yaml.Node, position) {
	return childIn(node, name, maxMerges)
}

func childIn(node *yaml.Node, name string, depth int) (*yaml.Node, position) {
	node = resolveAlias(node)
	if node == nil || depth == 0 {
		return nil, position{}
	}
	switch node.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], positionOf(node.Content[i])
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if key := node.Content[i]; key.Value == name || camelName(name) == key.Value {
				return node.Content[i+1], positionOf(key)
			}
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Tag != "!!merge" {
				continue
			}
			merged := resolveAlias(node.Content[i+1])
			if merged == nil {
				continue
			}
			all := []*yaml.Node{merged}
			if merged.Kind == yaml.SequenceNode {
				all = merged.Content
			}
			for _, m := range all {
				if found, at := childIn(m, name, depth-1); found != nil {
					return found, at
				}
			}
		}
	}
	return nil, position{}
}

// resolveAlias follows an alias.
func resolveAlias(node *yaml.Node) *yaml.Node {
	for range maxMerges {
		if node == nil || node.Kind != yaml.AliasNode {
			break
		}
		node = node.Alias
	}
	return node
}

var stepPattern = regexp.MustCompile(`\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[\]]+)`)

// splitPath splits `schedule.cron.expressions[0]` and `labels["a.b"]`.
func splitPath(path string) (out []string) {
	for _, m := range stepPattern.FindAllStringSubmatch(path, -1) {
		switch {
		case m[2] != "":
			out = append(out, m[2])
		case m[3] != "":
			out = append(out, m[3])
		default:
			text, err := strconv.Unquote(`"` + m[1] + `"`)
			if err != nil {
				text = m[1]
			}
			out = append(out, text)
		}
	}
	return out
}

// quotedStep is a path of one name, whatever characters it has.
func quotedStep(name string) string { return "[" + strconv.Quote(name) + "]" }

// camelName is the name of a field in JSON: retryPolicy for retry_policy.
func camelName(name string) string {
	parts := strings.Split(name, "_")
	for i, part := range parts[1:] {
		if part != "" {
			parts[i+1] = strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return strings.Join(parts, "")
}
