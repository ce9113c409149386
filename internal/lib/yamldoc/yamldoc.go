// Package yamldoc reads YAML that others wrote into trees, within bounds.
//
// Invariants:
//
//  1. A document is refused before memory is taken for it that its text does not pay for:
//     what an alias or a merge stands for counts as often as it is there.
//  2. The bounds of all documents together hold over all readers that share a [Budget].
package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"

	"go.yaml.in/yaml/v3"
)

const (
	// MaxDocument bounds what a document stands for, aliases expanded, in bytes.
	MaxDocument = 32 << 20
	// MaxTotal bounds that of all documents together.
	MaxTotal = 64 << 20
	// MaxMarks bounds the commas and line breaks of a text, by which it has values.
	MaxMarks = 1 << 20

	// MaxKeys bounds the keys of one mapping: the library compares each with all others.
	MaxKeys = 1000
	// MaxDocuments bounds the documents of a text that is not an export, line by line.
	MaxDocuments = 20_000

	// perNode is what a value costs beside its text, in bytes.
	perNode = 32
	// pairsPerByte is how many comparisons of keys count as a byte: many mappings, or many
	// aliases of one, would take the time that one mapping may not.
	pairsPerByte = 4
	// maxDepth is more than the library takes.
	maxDepth = 10_000
)

// Budget is what may still be read. The zero value is that of [MaxTotal].
type Budget struct{ spent int }

// Spend takes bytes out of the budget; it fails if there are too few.
func (b *Budget) Spend(n int) error {
	b.spent = min(b.spent+n, MaxTotal+1)
	if b.spent > MaxTotal {
		return fmt.Errorf("all files together stand for more than %d MiB", MaxTotal>>20)
	}
	return nil
}

// Reader reads the documents of a text.
type Reader struct {
	next   func() (*yaml.Node, error)
	budget *Budget
	read   int // documents
	err    error
}

// NewReader reads documents out of a budget. What is JSON is read as JSON.
func NewReader(text []byte, b *Budget) *Reader {
	r := &Reader{budget: b}
	if marks := bytes.Count(text, []byte(",")) + bytes.Count(text, []byte("\n")); marks > MaxMarks {
		r.err = fmt.Errorf("more than %d commas and line breaks: split the file, or write each job on a line, as "+
			"fermata export does", MaxMarks)
		return r
	}
	if isJSON(text) {
		r.next = newJSONReader(text).next
		return r
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	r.next = func() (*yaml.Node, error) {
		node := &yaml.Node{}
		return node, decoder.Decode(node)
	}
	return r
}

// Next is the next document; io.EOF after the last one. After an error there is none.
func (r *Reader) Next() (*yaml.Node, error) {
	if r.err != nil {
		return nil, r.err
	}
	var node *yaml.Node
	node, r.err = r.next()
	if r.err != nil {
		return nil, r.err
	}
	r.read++
	if r.read > MaxDocuments {
		r.err = fmt.Errorf("more than %d documents: split the file", MaxDocuments)
		return &yaml.Node{Line: node.Line}, r.err
	}
	if wide := wideMapping(node, 0); wide != nil {
		r.err = fmt.Errorf("line %d: a mapping of more than %d keys", wide.Line, MaxKeys)
		return &yaml.Node{Line: wide.Line}, r.err
	}
	size := (&scale{known: map[*yaml.Node]int{}}).of(node, 0)
	r.err = r.budget.Spend(size)
	if size > MaxDocument {
		r.err = fmt.Errorf("stands for more than %d MiB, with its aliases", MaxDocument>>20)
	}
	if r.err != nil {
		return &yaml.Node{Line: node.Line}, r.err
	}
	return node, nil
}

// wideMapping finds a mapping that has too many keys; nil if there is none. What an alias
// stands for is looked at where its anchor is. A document that is too deep is left to [scale].
func wideMapping(n *yaml.Node, depth int) *yaml.Node {
	if n.Kind == yaml.MappingNode && len(n.Content)/2 > MaxKeys {
		return n
	}
	if depth > maxDepth {
		return nil
	}
	for _, child := range n.Content {
		if wide := wideMapping(child, depth+1); wide != nil {
			return wide
		}
	}
	return nil
}

// Unmarshal decodes the only document of a text strictly, within the bounds of a [Reader]:
// keys that are not known are faults, and so is a second document. Faults are named in terms of YAML,
// each with its line. It returns io.EOF for a text without a document.
func Unmarshal(text []byte, into any) error {
	r := NewReader(text, &Budget{})
	if _, err := r.Next(); err != nil {
		return err
	}
	if _, err := r.Next(); err == nil {
		return ErrSecondDocument
	} else if !Ended(err) {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return explain(d.Decode(into), reflect.TypeOf(into))
}

// ErrSecondDocument is for texts that may have one document.
var ErrSecondDocument = errors.New("it holds more than one document")

// Ended reports whether an error is the end of the text.
func Ended(err error) bool { return errors.Is(err, io.EOF) }

// scale weighs trees. What an alias stands for is weighed once and counted each time.
type scale struct{ known map[*yaml.Node]int }

// tooMuch stands for any size above all bounds.
const tooMuch = MaxTotal + 1

func (s *scale) of(n *yaml.Node, depth int) int {
	if n == nil {
		return 0
	}
	if size, ok := s.known[n]; ok {
		return size
	}
	if depth > maxDepth {
		return tooMuch
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		s.known[n] = tooMuch // an alias of itself has no end
	}
	size := perNode + len(n.Value)
	if n.Kind == yaml.MappingNode {
		keys := len(n.Content) / 2
		size += keys * keys / pairsPerByte
	}
	if n.Kind == yaml.AliasNode {
		size += s.of(n.Alias, depth+1)
	}
	for _, child := range n.Content {
		size = min(size+s.of(child, depth+1), tooMuch)
		if size == tooMuch {
			break
		}
	}
	size = min(size, tooMuch)
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		s.known[n] = size
	}
	return size
}
