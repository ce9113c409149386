package importer

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/internal/lib/visible"
)

// Note is something that a job does not do as its entry did.
type Note struct {
	File string
	Line int
	Text string
}

func (n Note) String() string {
	return fmt.Sprintf("%s:%d: %s", n.File, n.Line, strings.ReplaceAll(n.Text, "\n", "; "))
}

// Entry is one imported entry.
type Entry struct {
	// Source is the entry's place and text, for a comment.
	Source string
	Notes  []Note
	// fields is nil when no job can be made of it.
	fields *yamlMapping
	id     string
	// disabled: the job could not run, and is written as a comment.
	disabled bool
}

// HasJob reports whether the entry became a job that is not commented out.
func (e *Entry) HasJob() bool { return e.fields != nil && !e.disabled }

// turnOff writes the job as a comment, with a reason.
func (e *Entry) turnOff(reason string, note func(string)) {
	e.disabled = true
	note(reason + "; the job is commented out")
}

// yamlMapping is a YAML mapping with ordered keys.
type yamlMapping struct{ node yaml.Node }

func newMapping() *yamlMapping { return &yamlMapping{yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}} }

// setField adds a value: a text, number, bool, list of texts, or mapping.
func (m *yamlMapping) setField(key string, value any) *yamlMapping {
	var v *yaml.Node
	switch value := value.(type) {
	case *yamlMapping:
		v = &value.node
	case []string:
		v = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, s := range value {
			v.Content = append(v.Content, textNode(s))
		}
	case string:
		v = textNode(value)
	default:
		v = &yaml.Node{}
		v.SetString(fmt.Sprint(value))
		v.Tag, v.Style = "", 0 // a number or a bool as it is
	}
	m.node.Content = append(m.node.Content, textNode(key), v)
	return m
}

func (m *yamlMapping) setFlowStyle() *yamlMapping {
	m.node.Style = yaml.FlowStyle
	return m
}

func (m *yamlMapping) isEmpty() bool { return len(m.node.Content) == 0 }

// textNode returns a string node. It is quoted if YAML would read it as another type or change it.
func textNode(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	isOdd := func(r rune) bool { return r != '\n' && (!unicode.IsPrint(r) || visible.MustEscape(r)) }
	odd := strings.ContainsFunc(s, isOdd)
	if lines := strings.Contains(s, "\n"); odd || lines &&
		(strings.TrimSpace(s) == "" || s[0] == ' ' || s[0] == '\n' || strings.HasSuffix(s, "\n\n")) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// Write writes entries as YAML documents, with their notes as comments. head is a comment above all of them. It fails
// if they are too large for a file.
func Write(head string, entries []Entry) ([]byte, error) {
	var out bytes.Buffer
	writeComment(&out, head)
	for i := range entries {
		e := &entries[i]
		if out.Len() > maxImport {
			return nil, fmt.Errorf("%s: the jobs above this line have more than %d MiB as YAML, and fermata apply reads "+
				"no larger file: import fewer files or entries at once", clipText(e.Source, 80), maxImport>>20)
		}
		out.WriteString("---\n")
		writeComment(&out, e.Source)
		for _, n := range e.Notes {
			writeComment(&out, "NOTE: "+strings.ReplaceAll(n.Text, "\n", "; "))
		}
		if e.fields == nil {
			continue
		}
		var fields bytes.Buffer
		encoder := yaml.NewEncoder(&fields)
		encoder.SetIndent(2)
		if err := encoder.Encode(&e.fields.node); err != nil {
			return nil, err
		}
		if err := encoder.Close(); err != nil {
			return nil, err
		}
		if e.disabled {
			writeComment(&out, strings.TrimSuffix(visible.YAML(fields.String()), "\n"))
			continue
		}
		out.WriteString(visible.YAML(fields.String()))
	}
	return out.Bytes(), nil
}

// writeComment writes lines of text as comments, whatever is in them.
func writeComment(out *bytes.Buffer, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		out.WriteString(strings.TrimRight("# "+printableText(line), " ") + "\n")
	}
}

func printableText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) || visible.MustEscape(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}

// makeIDsUnique gives a second entry of the same id another one.
func makeIDsUnique(entries []Entry) {
	seen := map[string]int{}
	for i := range entries {
		e := &entries[i]
		if e.fields == nil {
			continue
		}
		seen[e.id]++
		id := e.id
		for n := seen[e.id]; n > 1; n++ {
			if id = fmt.Sprintf("%s-%d", e.id, n); seen[id] == 0 {
				seen[id] = 1
				break
			}
		}
		e.fields.node.Content[1].Value = id
	}
}

// idSlug returns a text as part of an id: letters, digits and single dashes.
func idSlug(s string, most int) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == most {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}
