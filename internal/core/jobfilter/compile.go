package jobfilter

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.einride.tech/aip/filtering"
	expr "google.golang.org/genproto/googleapis/api/expr/v1alpha1"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/timespan"
)

// compiler turns what the library parsed into conditions.
type compiler struct {
	filter    string
	rewritten *rewritten
	positions map[int64]int32
}

func compileText(filter string) (condition, error) {
	r, err := rewrite(filter)
	if err != nil {
		return nil, err
	}
	text := r.text.String()
	trimmed := len(text) - len(strings.TrimLeft(text, " "))
	var parser filtering.Parser
	parser.Init(text)
	parsed, err := parser.Parse()
	if err != nil {
		return nil, explainParseError(err, filter, r, trimmed)
	}
	c := &compiler{filter: filter, rewritten: r, positions: parsed.GetSourceInfo().GetPositions()}
	for id := range c.positions {
		c.positions[id] += int32(trimmed)
	}
	return c.compile(parsed.GetExpr())
}

// explainParseError makes an Error of the innermost error of the library that has a position.
func explainParseError(err error, filter string, r *rewritten, trimmed int) error {
	type positioned interface {
		Position() filtering.Position
		Message() string
	}
	offset, reason := 0, "invalid"
	for e := err; e != nil; e = errors.Unwrap(e) {
		if p, ok := e.(positioned); ok {
			offset, reason = int(p.Position().Offset)+trimmed, p.Message()
		}
	}
	from := min(r.origin(offset), len(filter))
	if offset >= r.text.Len() {
		from, reason = len(filter), "the filter ends too early"
	}
	return &Error{utf8.RuneCountInString(filter[:from]) + 1, strings.ReplaceAll(reason, "token ", "")}
}

func (c *compiler) fault(e *expr.Expr, format string, args ...any) error {
	from := min(c.rewritten.origin(int(c.positions[e.GetId()])), len(c.filter))
	return &Error{utf8.RuneCountInString(c.filter[:from]) + 1, fmt.Sprintf(format, args...)}
}

func (c *compiler) compile(e *expr.Expr) (condition, error) {
	if text, ok := constantText(e); ok {
		return anyOf{contains{&fields[idField], lower(text)}, contains{&fields[handlerField], lower(text)}}, nil
	}
	call := e.GetCallExpr()
	switch function := call.GetFunction(); function {
	case filtering.FunctionAnd, filtering.FunctionFuzzyAnd, filtering.FunctionOr:
		return c.compileJoin(function, call.GetArgs())
	case filtering.FunctionNot:
		inner, err := c.compile(call.GetArgs()[0])
		if err != nil {
			return nil, err
		}
		return negation{inner}, nil
	case filtering.FunctionEquals, filtering.FunctionNotEquals, filtering.FunctionLessThan, filtering.FunctionLessEquals,
		filtering.FunctionGreaterThan, filtering.FunctionGreaterEquals, filtering.FunctionHas:
		return c.compileComparison(e, function, call.GetArgs())
	}
	return nil, c.fault(e, "a comparison or a word is expected")
}

func (c *compiler) compileJoin(function string, args []*expr.Expr) (condition, error) {
	var parts []condition
	for _, arg := range args {
		part, err := c.compile(arg)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	if function == filtering.FunctionOr {
		return anyOf(parts), nil
	}
	return allOf(parts), nil
}

func (c *compiler) compileComparison(e *expr.Expr, op string, args []*expr.Expr) (condition, error) {
	value, ok := constantText(args[1])
	if !ok {
		return nil, c.fault(args[1], "a value is expected")
	}
	name, inside, ok := fieldPath(args[0])
	if !ok {
		return nil, c.fault(args[0], "a field is expected before %s", op)
	}
	f, err := findField(name, 1)
	if err != nil {
		return nil, err
	}
	if f.Kind != Labels && inside != "" {
		return nil, c.fault(args[0], "the field %s has no parts", name)
	}
	found, reason := f.compare(op, inside, value)
	if reason != "" {
		return nil, c.fault(e, "%s %s %s: %s", name, op, job.Clip(value, 40), reason)
	}
	if op == filtering.FunctionNotEquals {
		return negation{found}, nil
	}
	return found, nil
}

// compare returns the condition of a comparison, for != the one that is negated, or the reason why there is none.
func (f *Field) compare(op, inside, value string) (found condition, reason string) {
	order := op[0] == '<' || op[0] == '>'
	if order && f.Kind != Number && f.Kind != Time {
		return nil, "only numbers and times have an order; use =, != or :"
	}
	switch f.Kind {
	case Labels:
		return compareLabels(op, inside, value)
	case Flag:
		want, err := strconv.ParseBool(value)
		if err != nil || value != "true" && value != "false" {
			return nil, "want true or false"
		}
		return flagIs{f, want}, ""
	case Choice:
		if !slices.Contains(f.Choices, value) {
			return nil, "want " + strings.Join(f.Choices, ", ")
		}
		return textIs{f, value}, ""
	case Number:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, "want a whole number"
		}
		return numberIs{f, op, n}, ""
	case Time:
		if op == filtering.FunctionHas && value == "*" {
			return timeExists{f}, ""
		}
		at, ok := parseInstant(value)
		if !ok {
			return nil, "want a time such as 2026-11-30T08:00:00Z or 2026-11-30, or one from now such as -24h, 30m or now"
		}
		return timeIs{f, op, at}, ""
	}
	return compareText(f, op, value), ""
}

func compareText(f *Field, op, value string) condition {
	switch {
	case op == filtering.FunctionHas && value == "*":
		return negation{textIs{f, ""}}
	case op == filtering.FunctionHas:
		return contains{f, lower(unmarkStars(strings.Trim(value, "*")))}
	case strings.Contains(value, "*"):
		return newPattern(f, value)
	}
	return textIs{f, unmarkStars(value)}
}

func compareLabels(op, key, value string) (condition, string) {
	switch {
	case key == "" && op == filtering.FunctionHas:
		return hasLabel{unmarkStars(value)}, ""
	case key == "":
		return nil, "write labels.KEY = VALUE, or labels:KEY"
	case op == filtering.FunctionHas && value == "*":
		return hasLabel{key}, ""
	}
	label := &Field{Name: "labels", Kind: Text, text: func(s *subject) string { return s.Definition.Labels[key] }}
	return allOf{hasLabel{key}, compareText(label, op, value)}, ""
}

// instant is a point in time, or a distance from now.
type instant struct {
	ms       int64
	relative bool
}

func (i instant) at(nowMS unixtime.Milli) int64 {
	if i.relative {
		return int64(nowMS) + i.ms
	}
	return i.ms
}

func parseInstant(text string) (instant, bool) {
	if text == "now" {
		return instant{relative: true}, true
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return instant{ms: t.UnixMilli()}, true
		}
	}
	d, err := timespan.Parse(text)
	return instant{ms: d.Milliseconds(), relative: true}, err == nil
}

func constantText(e *expr.Expr) (string, bool) {
	text, ok := e.GetConstExpr().GetConstantKind().(*expr.Constant_StringValue)
	if !ok {
		return "", false
	}
	return text.StringValue, true
}

// fieldPath returns the field on the left side of a comparison, and the name within it.
func fieldPath(e *expr.Expr) (name, inside string, ok bool) {
	if ident := e.GetIdentExpr(); ident != nil {
		return ident.GetName(), "", true
	}
	selected := e.GetSelectExpr()
	if selected == nil {
		return "", "", false
	}
	name, inside, ok = fieldPath(selected.GetOperand())
	if inside != "" {
		inside += "."
	}
	return name, inside + selected.GetField(), ok
}
