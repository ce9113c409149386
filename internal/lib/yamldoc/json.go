package yamldoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// isJSON reports whether a text is JSON values and nothing else. The YAML library does not
// read all of JSON: it refuses \/ and pairs of surrogates.
func isJSON(text []byte) bool {
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	if len(trimmed) == 0 || trimmed[0] != '{' && trimmed[0] != '[' {
		return false
	}
	in := json.NewDecoder(bytes.NewReader(text))
	for {
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// jsonReader makes the trees of JSON values that a YAML decoder makes of YAML documents.
type jsonReader struct {
	text    []byte
	decoder *json.Decoder
	offset  int // up to which lines are counted
	line    int
}

func newJSONReader(text []byte) *jsonReader {
	r := &jsonReader{text: text, decoder: json.NewDecoder(bytes.NewReader(text)), line: 1}
	r.decoder.UseNumber()
	return r
}

// next is the next value as a document; io.EOF after the last one.
func (r *jsonReader) next() (*yaml.Node, error) {
	value, err := r.value(0)
	if err != nil {
		return nil, err
	}
	return &yaml.Node{Kind: yaml.DocumentNode, Line: value.Line, Column: 1, Content: []*yaml.Node{value}}, nil
}

func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("more than %d levels deep", maxDepth)
	}
	token, err := r.decoder.Token()
	if err != nil {
		return nil, err
	}
	node := &yaml.Node{Kind: yaml.ScalarNode, Line: r.lineOf(int(r.decoder.InputOffset())), Column: 1}
	switch token := token.(type) {
	case json.Delim:
		node.Kind, node.Tag = yaml.MappingNode, "!!map"
		if token == '[' {
			node.Kind, node.Tag = yaml.SequenceNode, "!!seq"
		}
		for r.decoder.More() {
			child, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		_, err = r.decoder.Token()
		return node, err
	case string:
		node.Tag, node.Style, node.Value = "!!str", yaml.DoubleQuotedStyle, token
	case nil:
		node.Tag, node.Value = "!!null", "null"
	default: // a number or a bool, which YAML reads as JSON does
		node.Value = fmt.Sprint(token)
	}
	return node, nil
}

// lineOf is the line of an offset; offsets only grow.
func (r *jsonReader) lineOf(offset int) int {
	r.line += bytes.Count(r.text[r.offset:offset], []byte("\n"))
	r.offset = offset
	return r.line
}
