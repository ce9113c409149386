package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"gopkg.in/yaml.v3"

	"github.com/fermata-io/fermata/internal/visible"
)

// table is rows under a heading.
type table struct {
	heading []string
	rows    [][]string
	// empty is said instead when there are no rows.
	empty string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (a *app) println(text string) error {
	_, err := fmt.Fprintln(a.out, text)
	return err
}

func (a *app) printTable(t table) error {
	if len(t.rows) == 0 && t.empty != "" {
		return a.println(t.empty)
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{t.heading}, t.rows...) {
		if row != nil {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(a.out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// printOne writes a message as JSON or YAML, or else by the given function.
func printOne[M proto.Message](a *app, m M, asTable func(M) error) error {
	if a.output == "table" {
		return asTable(m)
	}
	text, err := encode(m)
	if err != nil {
		return err
	}
	return a.printText(text)
}

// printText writes a JSON object, as such or as YAML.
func (a *app) printText(text string) error {
	switch {
	case a.several != nil:
		*a.several = append(*a.several, text)
		return nil
	case a.output == "yaml":
		return a.printYAML(text)
	}
	return a.println(tamed(text))
}

// fact is a field of the object that tells what a command has done.
type fact struct {
	name  string
	value any
}

// did tells what a command has done for which the API has no message: in words or, for
// programs, as an object of facts.
func (a *app) did(words string, facts ...fact) error {
	if a.output == "table" {
		return a.println(words)
	}
	var text bytes.Buffer
	for i, f := range facts {
		value, err := json.Marshal(f.value)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%c%q:%s", "{,"[min(i, 1)], f.name, value)
	}
	text.WriteByte('}')
	var out bytes.Buffer
	if err := json.Indent(&out, text.Bytes(), "", "  "); err != nil {
		return err
	}
	return a.printText(out.String())
}

// printAll writes messages as one JSON array or as YAML documents.
func printAll[M proto.Message](a *app, list []M, asTable func([]M) error) error {
	if a.output == "table" {
		return asTable(list)
	}
	texts := make([]string, len(list))
	for i, m := range list {
		text, err := encode(m)
		if err != nil {
			return err
		}
		texts[i] = text
	}
	return a.printTexts(texts)
}

// printTexts writes JSON objects as one JSON array or as YAML documents.
func (a *app) printTexts(texts []string) error {
	if a.output == "json" {
		var all bytes.Buffer
		if err := json.Indent(&all, []byte("["+strings.Join(texts, ",")+"]"), "", "  "); err != nil {
			return err
		}
		return a.println(tamed(all.String()))
	}
	for i, text := range texts {
		if i > 0 {
			if err := a.println("---"); err != nil {
				return err
			}
		}
		if err := a.printYAML(text); err != nil {
			return err
		}
	}
	return nil
}

// encode writes indented JSON with the field names of the .proto files. What
// protojson writes varies in its white space on purpose; this does not.
func encode(m proto.Message) (string, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return "", err
	}
	return out.String(), nil
}

// tamed escapes what JSON may hold as it is and a terminal, or who looks at it, would obey, as
// [printable] replaces it in tables. It stays the same JSON.
func tamed(text string) string { return visible.JSON(text) }

// encodeLine is encode without line breaks.
func encodeLine(m proto.Message) (string, error) {
	text, err := encode(m)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = json.Compact(&out, []byte(text))
	return tamed(out.String()), err
}

// printYAML writes JSON as YAML with the keys in their order.
func (a *app) printYAML(text string) error {
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(visible.YAML(text)), &node); err != nil {
		return err
	}
	plain(&node)
	showPayload(&node)
	quoteWhatSteers(&node)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := cmp.Or(encoder.Encode(&node), encoder.Close()); err != nil {
		return err
	}
	_, err := io.WriteString(a.out, visible.YAML(out.String()))
	return err
}

func plain(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plain(child)
	}
}

// showPayload writes the payload of a job as text where it is text.
func showPayload(document *yaml.Node) {
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return
	}
	fields := document.Content[0].Content
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i].Value != "payload" {
			continue
		}
		text, err := base64.StdEncoding.DecodeString(fields[i+1].Value)
		if err == nil && len(text) > 0 && isText(string(text)) {
			fields[i].Value = "payload_text"
			fields[i+1].SetString(string(text))
		}
	}
}

func isText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '\n' && r != '\t' && !unicode.IsPrint(r)
	})
}

// quoteWhatSteers puts texts that have such characters into double quotes, where these can be
// escaped.
func quoteWhatSteers(node *yaml.Node) {
	steers := func(r rune) bool { return r != '\n' && r != '\t' && visible.Steers(r) }
	if node.Kind == yaml.ScalarNode && strings.ContainsFunc(node.Value, steers) {
		node.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		quoteWhatSteers(child)
	}
}
