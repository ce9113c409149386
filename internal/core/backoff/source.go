package backoff

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// Field is one field of [Policies] that a job or an operator can set by itself.
type Field uint8

// Fields. Their numbers are stored: they are never reused.
const (
	RetryStrategy Field = iota
	RetryBase
	RetryMultiplier
	RetryOffset
	RetryMaxDoublings
	RetryMaxDelay
	RetryMaxAttempts
	RetryMaxElapsed
	RetryJitter
	BackoffDisabled
	BackoffMultiplier
	BackoffMaxExponent
	BackoffMaxDelay
	BackoffMaxRatio
	BackoffJitter
	BackoffStaleAfter
	BackoffStaleHalve
	MinInterval
	MaxInterval
	BackoffWithinSlot

	// FieldCount is how many there are.
	FieldCount
)

// fieldTable has, for each field, its name in the API, its policy, and access to its value.
var fieldTable = [FieldCount]struct {
	policy, name string
	copy         func(to, from *Policies)
	equal        func(a, b *Policies) bool
	text         func(p *Policies) string
	duration     func(p *Policies) *time.Duration // nil: it is none
}{
	RetryStrategy: newField("retry_policy", "strategy", func(p *Policies) *Strategy { return &p.Retry.Strategy }),
	RetryBase: newField("retry_policy", "base_delay",
		func(p *Policies) *time.Duration { return &p.Retry.Base }),
	RetryMultiplier: newField("retry_policy", "multiplier",
		func(p *Policies) *float64 { return &p.Retry.Multiplier }),
	RetryOffset: newField("retry_policy", "exponent_offset", func(p *Policies) *int { return &p.Retry.Offset }),
	RetryMaxDoublings: newField("retry_policy", "max_doublings",
		func(p *Policies) *int { return &p.Retry.MaxDoublings }),
	RetryMaxDelay: newField("retry_policy", "max_delay",
		func(p *Policies) *time.Duration { return &p.Retry.MaxDelay }),
	RetryMaxAttempts: newField("retry_policy", "max_attempts",
		func(p *Policies) *int { return &p.Retry.MaxAttempts }),
	RetryMaxElapsed: newField("retry_policy", "max_elapsed",
		func(p *Policies) *time.Duration { return &p.Retry.MaxElapsed }),
	RetryJitter: newField("retry_policy", "jitter", func(p *Policies) *Jitter { return &p.Retry.Jitter }),
	BackoffDisabled: newField("backoff_policy", "disabled",
		func(p *Policies) *bool { return &p.Recurring.Disabled }),
	BackoffMultiplier: newField("backoff_policy", "multiplier",
		func(p *Policies) *float64 { return &p.Recurring.Multiplier }),
	BackoffMaxExponent: newField("backoff_policy", "max_exponent",
		func(p *Policies) *int { return &p.Recurring.MaxExponent }),
	BackoffMaxDelay: newField("backoff_policy", "max_delay",
		func(p *Policies) *time.Duration { return &p.Recurring.MaxDelay }),
	BackoffMaxRatio: newField("backoff_policy", "max_ratio",
		func(p *Policies) *float64 { return &p.Recurring.MaxRatio }),
	BackoffJitter: newField("backoff_policy", "jitter", func(p *Policies) *Jitter { return &p.Recurring.Jitter }),
	BackoffStaleAfter: newField("backoff_policy", "stale_after",
		func(p *Policies) *time.Duration { return &p.Recurring.StaleAfter }),
	BackoffStaleHalve: newField("backoff_policy", "stale_halve",
		func(p *Policies) *bool { return &p.Recurring.StaleHalve }),
	MinInterval: newField("backoff_policy", "min_interval",
		func(p *Policies) *time.Duration { return &p.MinInterval }),
	MaxInterval: newField("backoff_policy", "max_interval",
		func(p *Policies) *time.Duration { return &p.MaxInterval }),
	BackoffWithinSlot: newField("backoff_policy", "within_period",
		func(p *Policies) *bool { return &p.Recurring.WithinSlot }),
}

func newField[T comparable](policy, name string, at func(*Policies) *T) (row struct {
	policy, name string
	copy         func(to, from *Policies)
	equal        func(a, b *Policies) bool
	text         func(p *Policies) string
	duration     func(p *Policies) *time.Duration
}) {
	row.policy, row.name = policy, name
	row.copy = func(to, from *Policies) { *at(to) = *at(from) }
	row.equal = func(a, b *Policies) bool { return *at(a) == *at(b) }
	row.text = func(p *Policies) string { return fmt.Sprint(*at(p)) }
	if d, ok := any(at).(func(*Policies) *time.Duration); ok {
		row.duration = d
	}
	return row
}

// Policy returns the name of the message that the field is in: retry_policy or backoff_policy.
func (f Field) Policy() string { return fieldTable[f].policy }

// Name returns what the field is called in its message.
func (f Field) Name() string { return fieldTable[f].name }

// Path returns the path of the field in a job.
func (f Field) Path() string { return fieldTable[f].policy + "." + fieldTable[f].name }

// IsRetry reports whether the field belongs to the retry policy.
func (f Field) IsRetry() bool { return f <= RetryJitter }

// Equal reports whether two policies have the same value in the field.
func (f Field) Equal(a, b *Policies) bool { return fieldTable[f].equal(a, b) }

// Text returns the value of the field, for people and for comparison.
func (f Field) Text(p *Policies) string { return fieldTable[f].text(p) }

// FieldByPath finds a field by its path in a job.
func FieldByPath(path string) (Field, bool) {
	for f := range FieldCount {
		if f.Path() == path {
			return f, true
		}
	}
	return 0, false
}

// FieldSet is a set of fields, a bit each.
type FieldSet uint32

// Sets of fields.
const (
	RetryFields   FieldSet = 1<<(RetryJitter+1) - 1
	BackoffFields FieldSet = (1<<FieldCount - 1) &^ RetryFields
)

// Has reports whether the set has the field.
func (s FieldSet) Has(f Field) bool { return s&(1<<f) != 0 }

// With returns the set with one more field.
func (s FieldSet) With(f Field) FieldSet { return s | 1<<f }

// SourceKind is where the value of a field comes from. The order is that of precedence, the
// weakest first.
type SourceKind uint8

// Kinds of sources. Their numbers are stored.
const (
	FromBuiltin SourceKind = iota
	FromCluster
	FromNamespace
	FromQueue
	FromPreset // which the job names
	FromJob

	sourceKinds
)

var sourceNames = [sourceKinds]string{"built-in", "cluster", "namespace", "queue", "preset", "job"}

// Source is where the value of a field comes from. Namespaces, queues and presets have names.
type Source struct {
	Kind SourceKind
	Name string
}

// MaxSourceName bounds the name of a source.
const MaxSourceName = 64

// ByOperator reports whether the value is one that an operator can change: a default, or
// that of a preset.
func (s Source) ByOperator() bool { return s.Kind > FromBuiltin && s.Kind < FromJob }

// String returns what ParseSource reads: "job", "queue mail".
func (s Source) String() string {
	if s.Kind >= sourceKinds {
		return "unknown"
	}
	if s.Name == "" {
		return sourceNames[s.Kind]
	}
	return sourceNames[s.Kind] + " " + s.Name
}

// ParseSource reads a source. Namespaces, queues and presets need a name, others have none.
func ParseSource(text string) (Source, bool) {
	kind, name, named := strings.Cut(text, " ")
	i, ok := enumIndex(sourceNames[:], kind)
	s := Source{Kind: SourceKind(i), Name: name}
	return s, ok && s.isValid() && named == (name != "")
}

func (s Source) isValid() bool {
	named := s.Kind == FromNamespace || s.Kind == FromQueue || s.Kind == FromPreset
	return s.Kind < sourceKinds && named == (s.Name != "") && len(s.Name) <= MaxSourceName &&
		!strings.ContainsFunc(s.Name, isInvalidNameRune)
}

func isInvalidNameRune(c rune) bool { return c <= ' ' || c > '~' }

// Sources are those of all fields.
type Sources [FieldCount]Source

// ImpliedSources derives sources for policies that were stored without them: a value that differs from the
// built-in default is the job's own.
func ImpliedSources(p Policies, recurring bool) Sources {
	var s Sources
	builtin := DefaultPolicies(recurring)
	for f := range FieldCount {
		if !f.Equal(&p, &builtin) {
			s[f] = Source{Kind: FromJob}
		}
	}
	return s
}

// Group is the fields that have one source.
type Group struct {
	Source Source
	Fields FieldSet
}

// Groups returns the fields in which the sources differ from others, by source, in the order of
// their first fields.
func (s *Sources) Groups(than *Sources) []Group {
	var list []Group
next:
	for f := range FieldCount {
		if s[f] == than[f] {
			continue
		}
		for i := range list {
			if list[i].Source == s[f] {
				list[i].Fields = list[i].Fields.With(f)
				continue next
			}
		}
		list = append(list, Group{s[f], FieldSet(0).With(f)})
	}
	return list
}

// Apply overwrites the sources of a group's fields. It is false, and changes nothing, if the
// source or a field is not known.
func (s *Sources) Apply(g Group) bool {
	if !g.Source.isValid() || bits.Len32(uint32(g.Fields)) > int(FieldCount) {
		return false
	}
	for f := range FieldCount {
		if g.Fields.Has(f) {
			s[f] = g.Source
		}
	}
	return true
}

// FieldsOfKind returns the fields that have the kind of source.
func (s *Sources) FieldsOfKind(kind SourceKind) (set FieldSet) {
	for f := range FieldCount {
		if s[f].Kind == kind {
			set = set.With(f)
		}
	}
	return set
}
