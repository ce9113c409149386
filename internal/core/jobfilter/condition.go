package jobfilter

import (
	"slices"
	"strings"
)

// condition is a part of a filter.
type condition interface {
	matches(*subject) bool
}

type (
	allOf    []condition
	anyOf    []condition
	negation struct{ condition }

	// textIs compares a text as a whole.
	textIs struct {
		*Field
		want string
	}
	// contains finds a text in lower case.
	contains struct {
		*Field
		want string
	}
	// pattern has the parts between the wildcards of a value.
	pattern struct {
		*Field
		parts []string
	}
	flagIs struct {
		*Field
		want bool
	}
	numberIs struct {
		*Field
		op   string
		want int64
	}
	timeIs struct {
		*Field
		op   string
		want instant
	}
	timeExists struct{ *Field }
	hasLabel   struct{ key string }
)

// Places of the fields that a word alone searches.
const idField, handlerField = 0, 3

func (c allOf) matches(s *subject) bool {
	return !slices.ContainsFunc(c, func(part condition) bool { return !part.matches(s) })
}

func (c anyOf) matches(s *subject) bool {
	return slices.ContainsFunc(c, func(part condition) bool { return part.matches(s) })
}

func (c negation) matches(s *subject) bool { return !c.condition.matches(s) }

func (c textIs) matches(s *subject) bool { return c.text(s) == c.want }

func (c contains) matches(s *subject) bool { return strings.Contains(lower(c.text(s)), c.want) }

func (c flagIs) matches(s *subject) bool { return c.flag(s) == c.want }

func (c numberIs) matches(s *subject) bool { return ordered(c.op, c.number(s), c.want) }

// A time that a job does not have matches no comparison; != is the negation of =.
func (c timeIs) matches(s *subject) bool {
	have := c.number(s)
	return have != 0 && ordered(c.op, have, c.want.at(s.nowMS))
}

func (c timeExists) matches(s *subject) bool { return c.number(s) != 0 }

func (c hasLabel) matches(s *subject) bool {
	_, ok := s.Definition.Labels[c.key]
	return ok
}

// ordered compares numbers. != is compared as =, and negated elsewhere.
func ordered(op string, have, want int64) bool {
	switch op {
	case "<":
		return have < want
	case "<=":
		return have <= want
	case ">":
		return have > want
	case ">=":
		return have >= want
	}
	return have == want
}

// newPattern splits a value at its wildcards.
func newPattern(f *Field, value string) pattern {
	parts := strings.Split(value, "*")
	for i := range parts {
		parts[i] = unmarkStars(parts[i])
	}
	return pattern{f, parts}
}

// matches finds the parts from left to right: the first one at the start, the last one at the end.
func (c pattern) matches(s *subject) bool {
	last := len(c.parts) - 1
	rest, ok := strings.CutPrefix(c.text(s), c.parts[0])
	if !ok {
		return false
	}
	for _, part := range c.parts[1:last] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, c.parts[last])
}

func lower(text string) string { return strings.ToLower(text) }
