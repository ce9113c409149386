package jobfilter

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/core/job"
)

// maxSegments bounds the parts of a field between dots. A key of a label has at most 128 bytes.
const maxSegments = 65

// rewritten is a filter in the form that the library parses: all values and words are quoted.
type rewritten struct {
	text strings.Builder
	// places are offsets in text with the offsets in the filter that they come from, ascending.
	places []place
}

type place struct{ to, from int }

// origin returns the offset in the filter that an offset in the rewritten text comes from.
func (r *rewritten) origin(offset int) int {
	from := 0
	for _, p := range r.places {
		if p.to > offset {
			break
		}
		from = p.from
	}
	return from
}

func (r *rewritten) emit(from int, text string) {
	r.places = append(r.places, place{r.text.Len(), from})
	r.text.WriteString(text)
}

func (r *rewritten) emitQuoted(from int, text string) {
	r.emit(from, `"`+quoteEscapes.Replace(text)+`"`)
}

var quoteEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// scanner reads a filter from left to right.
type scanner struct {
	in    string
	at    int
	depth int
	terms int
	out   rewritten
}

// rewrite quotes the values and words of a filter, and checks its bounds.
func rewrite(filter string) (*rewritten, error) {
	s := &scanner{in: filter}
	for s.at < len(s.in) {
		if err := s.step(); err != nil {
			return nil, err
		}
	}
	return &s.out, nil
}

func (s *scanner) step() error {
	start := s.at
	switch c := s.in[s.at]; {
	case s.skipSpace():
		s.out.emit(start, " ")
	case c == '(' || c == ')':
		return s.parenthesis(c)
	case s.comparator() != "":
		return s.comparison()
	case c == '"' || c == '\'':
		return s.word()
	case c == ',' || c == '!':
		return s.fault(start, "unexpected %q", c)
	case c == '-':
		s.at++
		s.out.emit(start, "-")
		if s.at == len(s.in) || strings.ContainsRune(" \t\n\r-)", rune(s.in[s.at])) {
			return s.fault(start, "a term is missing after -")
		}
	default:
		return s.word()
	}
	return nil
}

func (s *scanner) parenthesis(c byte) error {
	if c == '(' {
		s.depth++
	} else {
		s.depth--
	}
	if s.depth > MaxDepth {
		return s.fault(s.at, "more than %d levels of parentheses", MaxDepth)
	}
	s.out.emit(s.at, string(c))
	s.at++
	return nil
}

// comparator returns the comparison operator at the current place, or "".
func (s *scanner) comparator() string {
	for _, op := range []string{"<=", ">=", "!=", "=", "<", ">", ":"} {
		if strings.HasPrefix(s.in[s.at:], op) {
			return op
		}
	}
	return ""
}

// comparison reads an operator and its value.
func (s *scanner) comparison() error {
	start, op := s.at, s.comparator()
	s.out.emit(start, op)
	s.at += len(op)
	s.skipSpace()
	first := s.at
	if s.at < len(s.in) && (s.in[s.at] == '"' || s.in[s.at] == '\'') {
		text, err := s.quoted()
		s.out.emit(first, markStars(text))
		return err
	}
	for s.at < len(s.in) && !s.atAny(" \t\n\r()\"'") {
		s.at++
	}
	if s.at == first {
		return s.fault(start, "a value is missing after %s", op)
	}
	value := s.in[first:s.at]
	if strings.ContainsRune("=<>!:~", rune(value[0])) {
		return s.fault(first, "%q after %s is no operator; quote a value that begins with it", value[:1], op)
	}
	if i := strings.IndexByte(value, ','); i >= 0 {
		return s.fault(first+i, "a list of values is not possible: join comparisons by OR; quote a value with a comma")
	}
	s.out.emitQuoted(first, value)
	return nil
}

// word reads a word, an operator in letters, or a field with the names within it.
func (s *scanner) word() error {
	start := s.at
	segments, err := s.segments()
	if err != nil {
		return err
	}
	text := s.in[start:s.at]
	switch {
	case text == "AND" || text == "OR" || text == "NOT":
		s.out.emit(start, text)
		if rest := strings.TrimSpace(s.in[s.at:]); rest == "" || rest[0] == ')' {
			return s.fault(start, "a term is missing after %s", text)
		}
		if s.in[s.at] == '(' {
			s.out.emit(s.at, " ") // the library takes NOT( for a function
		}
		return nil
	case s.at < len(s.in) && s.in[s.at] == '(':
		return s.fault(start, "%s( is no function, there are none", text)
	}
	s.terms++
	if s.terms > MaxTerms {
		return s.fault(start, "more than %d terms", MaxTerms)
	}
	if s.beforeComparator() {
		return s.field(start, segments)
	}
	return s.bareWord(start, text)
}

// segments reads a word up to its end. Its segments are separated by dots, and may be quoted.
func (s *scanner) segments() (segments []string, err error) {
	for {
		start := s.at
		if s.at < len(s.in) && (s.in[s.at] == '"' || s.in[s.at] == '\'') {
			text, err := s.quoted()
			if err != nil {
				return nil, err
			}
			segments = append(segments, text)
		} else {
			for s.at < len(s.in) && !s.atAny(" \t\n\r()\"'.,<>=!:") && !s.atSpace() {
				s.at++
			}
			segments = append(segments, `"`+quoteEscapes.Replace(s.in[start:s.at])+`"`)
		}
		if s.at == len(s.in) || s.in[s.at] != '.' {
			return segments, nil
		}
		s.at++
	}
}

// field emits the left side of a comparison.
func (s *scanner) field(start int, segments []string) error {
	name := strings.Trim(segments[0], `"'`)
	if _, err := findField(name, 0); err != nil || s.in[start] == '"' || s.in[start] == '\'' {
		_, err := findField(name, s.character(start))
		if err == nil {
			err = s.fault(start, "a field is not quoted")
		}
		return err
	}
	if len(segments) > maxSegments {
		return s.fault(start, "a field with more than %d parts", maxSegments)
	}
	s.out.emit(start, strings.Join(append([]string{name}, segments[1:]...), "."))
	return nil
}

// bareWord emits a word that is searched for.
func (s *scanner) bareWord(start int, text string) error {
	if text[0] == '"' || text[0] == '\'' {
		s.out.emit(start, text)
		return nil
	}
	switch text {
	case "and", "or", "not":
		return s.fault(start, "operators are capital: %s. To search for the word, quote it", strings.ToUpper(text))
	}
	if strings.ContainsRune("&|~", rune(text[0])) {
		return s.fault(start, "%q is no operator: write AND, OR or NOT. To search for it, quote it", job.Clip(text, 10))
	}
	if _, err := findField(text, 0); err == nil {
		if next := s.nextWord(); slices.Contains(foreignOperators, strings.ToLower(next)) {
			return s.fault(start, "%s %s: the operators are =, !=, <, <=, >, >= and :", text, next)
		}
	}
	for i := range fields {
		if f := &fields[i]; f.Name == text && f.Kind == Flag {
			return s.fault(start, "write %s = true. To search for the word, quote it", text)
		}
	}
	if strings.ContainsAny(text, `"'`) {
		return s.fault(start, "a quote within a word")
	}
	s.out.emitQuoted(start, text)
	return nil
}

// foreignOperators are words that compare in other languages. After the name of a field they are not searched for.
var foreignOperators = []string{"in", "is", "like", "ilike", "contains", "matches", "between", "eq", "ne", "not"}

// nextWord is the word that follows, without reading it.
func (s *scanner) nextWord() string {
	words := strings.FieldsFunc(s.in[s.at:], func(r rune) bool { return unicode.IsSpace(r) || r == '(' })
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

// quoted reads a quoted text with its quotes.
func (s *scanner) quoted() (string, error) {
	start := s.at
	for i := s.at + 1; i < len(s.in); i++ {
		switch s.in[i] {
		case '\\':
			i++
		case s.in[start]:
			s.at = i + 1
			return s.in[start:s.at], nil
		}
	}
	return "", s.fault(start, "the quote is not closed")
}

// literalStar stands for an escaped asterisk of a quoted value, which is no wildcard. It is no character of any text.
const literalStar = "\uFFFF"

// markStars replaces escaped asterisks of a quoted text.
func markStars(quoted string) string {
	var marked strings.Builder
	for i := 0; i < len(quoted); i++ {
		switch {
		case quoted[i] != '\\' || i+1 == len(quoted):
			marked.WriteByte(quoted[i])
		case quoted[i+1] == '*':
			marked.WriteString(literalStar)
			i++
		default:
			marked.WriteString(quoted[i : i+2])
			i++
		}
	}
	return marked.String()
}

// unmarkStars returns a value with its literal asterisks.
func unmarkStars(value string) string { return strings.ReplaceAll(value, literalStar, "*") }

// beforeComparator reports whether an operator follows.
func (s *scanner) beforeComparator() bool {
	at := s.at
	defer func() { s.at = at }()
	s.skipSpace()
	return s.at < len(s.in) && s.comparator() != ""
}

// skipSpace reports whether there was any.
func (s *scanner) skipSpace() bool {
	start := s.at
	for s.at < len(s.in) && s.atSpace() {
		_, n := utf8.DecodeRuneInString(s.in[s.at:])
		s.at += n
	}
	return s.at > start
}

func (s *scanner) atSpace() bool {
	r, _ := utf8.DecodeRuneInString(s.in[s.at:])
	return unicode.IsSpace(r)
}

func (s *scanner) atAny(chars string) bool { return strings.IndexByte(chars, s.in[s.at]) >= 0 }

// character counts the characters before an offset, from 1.
func (s *scanner) character(offset int) int { return utf8.RuneCountInString(s.in[:offset]) + 1 }

func (s *scanner) fault(offset int, format string, args ...any) error {
	return &Error{s.character(offset), fmt.Sprintf(format, args...)}
}
