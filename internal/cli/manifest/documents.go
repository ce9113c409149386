package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/internal/lib/visible"
	"github.com/fermata-io/fermata/internal/lib/yamldoc"
)

// readDocuments splits a file into its documents.
func (r *reader) readDocuments(text []byte) []*yaml.Node {
	if lines := jsonLines(text); len(lines) > 1 {
		return r.readLines(lines)
	}
	var out []*yaml.Node
	in := yamldoc.NewReader(text, r.budget)
	for {
		node, err := in.Next()
		switch {
		case err == nil:
			out = append(out, node)
		case yamldoc.Ended(err):
			return out
		default:
			line := 1
			if node != nil {
				line = node.Line
			}
			r.addReadFault(err, line)
			return out
		}
	}
}

// jsonLines are the lines of an export: each a JSON object.
func jsonLines(text []byte) (lines [][]byte) {
	for line := range bytes.SplitSeq(bytes.TrimSpace(text), []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && (line[0] != '{' || line[len(line)-1] != '}') {
			return nil
		}
		lines = append(lines, line)
	}
	return lines
}

// readLines reads jobs that are a line each. They may be a hundred thousand, with large
// payloads, which the YAML library is slow at; all that they need of it is the line.
func (r *reader) readLines(lines [][]byte) (rest []*yaml.Node) {
	for i, line := range lines {
		if len(line) == 0 {
			continue
		}
		if err := r.budget.Spend(len(line)); err != nil {
			r.addFault(position{line: i + 1}, "", err.Error())
			return rest
		}
		if len(r.set.Jobs) >= MaxJobs {
			r.addFault(position{line: i + 1}, "", fmt.Sprintf("more than %d jobs in a file", MaxJobs))
			return rest
		}
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			r.addFault(position{line: i + 1}, "", "is no JSON, as the lines of an export are")
			continue
		}
		_, jobs := fields["jobs"]
		if _, queues := fields["queues"]; !jobs && !queues {
			r.addJob(fields, &yaml.Node{Line: i + 1}, "")
			continue
		}
		node, err := yamldoc.NewReader(line, r.budget).Next()
		if err != nil {
			r.addReadFault(err, i+1)
			continue
		}
		shiftLines(node, i, 0)
		rest = append(rest, node)
	}
	return rest
}

// maxDepth is more than any job is deep.
const maxDepth = 64

func shiftLines(node *yaml.Node, by, depth int) {
	node.Line += by
	if depth == maxDepth {
		return
	}
	for _, child := range node.Content {
		shiftLines(child, by, depth+1)
	}
}

var lineInError = regexp.MustCompile(`line (\d+): `)

// addReadFault adds the errors of the YAML library, each at its line.
func (r *reader) addReadFault(err error, line int) {
	texts := []string{err.Error()}
	var several *yaml.TypeError
	if errors.As(err, &several) {
		texts = several.Errors
	}
	for _, text := range texts {
		at := line
		if m := lineInError.FindStringSubmatch(text); m != nil {
			at, _ = strconv.Atoi(m[1])
			text = strings.Replace(text, m[0], "", 1)
		}
		r.addFault(position{line: at}, "", "invalid YAML: "+strings.TrimPrefix(text, "yaml: "))
	}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// printableText removes terminal control characters from text of a file.
func printableText(s string) string { return visible.Line(s) }
