package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/lib/visible"
)

// outputTable is rows under a heading.
type outputTable struct {
	heading []string
	rows    [][]string
	// empty is printed instead when there are no rows.
	empty string
	// leadingColumns are the headings of the columns to leave out first where a terminal is too narrow;
	// a table without them is never made narrower.
	leadingColumns []string
}

func (t *outputTable) addRow(cells ...string) { t.rows = append(t.rows, cells) }

func (a *app) println(text string) error {
	_, err := fmt.Fprintln(a.out, text)
	return err
}

// printTable fits a table to a terminal. Where the output is none, all columns and all of
// their text are written.
func (a *app) printTable(t outputTable) error {
	return a.printTableWithin(t, a.terminalWidth())
}

// printTableWithin writes a table; width 0 is without bound.
func (a *app) printTableWithin(t outputTable, width int) error {
	if len(a.columnNames) > 0 && t.heading != nil {
		chosen, err := t.chooseColumns(a.columnNames)
		if err != nil {
			return err
		}
		t = chosen
	}
	if len(t.rows) == 0 && t.empty != "" {
		if a.noHeaders {
			return nil
		}
		return a.println(t.empty)
	}
	t = t.narrowTo(width)
	rows := t.rows
	if t.heading != nil && !a.noHeaders {
		rows = append([][]string{t.heading}, rows...)
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, columnGap, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
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

// printMessage writes a message as JSON or YAML, or with asTable.
func printMessage[M proto.Message](a *app, m M, asTable func(M) error) error {
	if j, ok := any(m).(*client.Job); ok {
		a.writeWarnings("", j)
	}
	switch a.output {
	case "table":
		return asTable(m)
	case "name":
		return a.printNames(m)
	}
	text, err := a.encodeShown(m)
	if err != nil {
		return err
	}
	return a.printText(text)
}

// printFetched returns the action of a command that prints what fetch returns for its arguments.
func printFetched[M proto.Message](a *app, asTable func(M) error,
	fetch func(ctx context.Context, c *client.Client, args []string) (M, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
			m, err := fetch(ctx, c, args)
			if err != nil {
				return err
			}
			return printMessage(a, m, asTable)
		})
	}
}

// writeWarnings writes what the nodes remarked about a job, each remark as a line of stderr that begins with a name.
func (a *app) writeWarnings(name string, j *client.Job) {
	for _, w := range j.GetWarnings() {
		fmt.Fprintln(a.err, "warning: "+printableText(name+w.GetField()+" "+w.GetText()))
	}
}

// printText writes a JSON object, as such or as YAML.
func (a *app) printText(text string) error {
	switch {
	case a.severalFlags != nil:
		*a.severalFlags = append(*a.severalFlags, text)
		return nil
	case a.output == "yaml":
		return a.printYAML(text)
	}
	return a.println(withoutControls(text))
}

// resultFact is one field of the result object of a command.
type resultFact struct {
	name  string
	value any
}

// printResult prints the result of a command that has no API message: as text, or as an object for programs.
func (a *app) printResult(words string, facts ...resultFact) error {
	if a.output == "table" || a.output == "name" {
		return a.println(words)
	}
	var text bytes.Buffer
	for i, f := range facts {
		value, err := encodeValue(f.value)
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

// printMessages writes messages as one JSON array or as YAML documents.
func printMessages[M proto.Message](a *app, list []M, asTable func([]M) error) error {
	switch a.output {
	case "table":
		return asTable(list)
	case "name":
		for _, m := range list {
			if err := a.printNames(m); err != nil {
				return err
			}
		}
		return nil
	}
	texts := make([]string, len(list))
	for i, m := range list {
		text, err := a.encodeShown(m)
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
		return a.println(withoutControls(all.String()))
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

// encodeShown is encodeMessage with the output of a run as text, if it is text: in JSON in addition to base64,
// in YAML instead of it. Nodes before this version send no text, and text for people has no control characters.
func (a *app) encodeShown(m proto.Message) (string, error) {
	run, isRun := m.(*client.Run)
	if !isRun {
		return encodeMessage(m)
	}
	shown := proto.CloneOf(run)
	shown.OutputText = ""
	if a.output == "json" && isText(string(run.GetOutput())) {
		shown.OutputText = string(run.GetOutput())
	}
	return encodeMessage(shown)
}

// encodeValue is json.Marshal without the escapes for HTML, which people have to read.
func encodeValue(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// encodeMessage writes indented JSON with the field names of the .proto files. What
// protojson writes varies in its white space on purpose; this does not.
func encodeMessage(m proto.Message) (string, error) {
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

// withoutControls escapes characters that are valid in JSON and could control a terminal or mislead its reader,
// as [printableText] replaces them in tables. The JSON value is unchanged.
func withoutControls(text string) string { return visible.JSON(text) }

// encodeLine is encode without line breaks.
func encodeLine(m proto.Message) (string, error) {
	text, err := encodeMessage(m)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = json.Compact(&out, []byte(text))
	return withoutControls(out.String()), err
}

// printYAML writes JSON as YAML with the keys in their order.
func (a *app) printYAML(text string) error {
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(visible.YAML(text)), &node); err != nil {
		return err
	}
	plainStyle(&node)
	showText(&node)
	quoteControlText(&node)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := cmp.Or(encoder.Encode(&node), encoder.Close()); err != nil {
		return err
	}
	_, err := io.WriteString(a.out, visible.YAML(out.String()))
	return err
}

func plainStyle(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plainStyle(child)
	}
}

// showText writes the payload of a job, and the output of a run, as text where it is text.
func showText(document *yaml.Node) {
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return
	}
	fields := document.Content[0].Content
	for i := 0; i+1 < len(fields); i += 2 {
		key := fields[i].Value
		if key != "payload" && key != "output" {
			continue
		}
		text, err := base64.StdEncoding.DecodeString(fields[i+1].Value)
		if err == nil && len(text) > 0 && isText(string(text)) {
			fields[i].Value = key + "_text"
			fields[i+1].SetString(shownText(string(text), key, fields))
		}
	}
}

// shownText returns a payload or an output of a built-in handler without the HTML escapes of Go's JSON encoder.
func shownText(text, key string, fields []*yaml.Node) string {
	if key == "output" {
		return withoutHTMLEscapes(text)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i].Value == "handler" && hasOwnPayload(fields[i+1].Value) {
			return withoutHTMLEscapes(text)
		}
	}
	return text
}

func hasOwnPayload(handler string) bool { return handler == "http" || handler == "exec" }

// htmlEscapes are those of encoding/json. An escaped backslash does not begin one.
var htmlEscapes = strings.NewReplacer(`\\`, `\\`, `\u0026`, "&", `\u003c`, "<", `\u003e`, ">")

// withoutHTMLEscapes returns JSON with the same value. Other text is unchanged.
func withoutHTMLEscapes(text string) string {
	if !json.Valid([]byte(text)) {
		return text
	}
	return htmlEscapes.Replace(text)
}

func isText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '\n' && r != '\t' && !unicode.IsPrint(r)
	})
}

// quoteControlText puts texts that have such characters into double quotes, where these can be
// escaped.
func quoteControlText(node *yaml.Node) {
	steers := func(r rune) bool { return r != '\n' && r != '\t' && visible.MustEscape(r) }
	if node.Kind == yaml.ScalarNode && strings.ContainsFunc(node.Value, steers) {
		node.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		quoteControlText(child)
	}
}
