package authz

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Everywhere is asked for in place of a namespace by what concerns all of them.
const Everywhere = "*"

// Rule gives a role to subjects.
type Rule struct {
	Subjects   []string // patterns of [Identity.Subject] or of groups
	Role       Role
	Namespaces []string // patterns; "*" is all
	// Queues are patterns of the queues that the role is for; none: all. Not for [Node].
	Queues []string
	// Limits of each identity that the rule means; zero fields leave it to others.
	Limits Limits
}

// Limits bound what one identity may do on one node. Zero fields are no limit, or leave it
// to [Policy.WithRoleLimits].
type Limits struct {
	Rate        float64 // calls a second
	Burst       int     // calls at once beyond the rate; at least 1 with a rate
	Calls       int     // calls and streams that are open at once
	Connections int     // connections at once
}

// Policy decides. The zero value denies everything.
type Policy struct {
	rules      []Rule
	fallback   Limits
	byRole     bool // see WithRoleLimits
	namespaces []NamespaceLimits
}

// NewPolicy checks rules. fallback are the limits of whom no rule gives any. The
// error lists all faults.
func NewPolicy(rules []Rule, fallback Limits) (*Policy, error) {
	faults := []error{fallback.Check("limits")}
	for i, r := range rules {
		faults = append(faults, r.check(fmt.Sprintf("rules[%d]", i)))
	}
	if len(rules) == 0 {
		faults = append(faults, errors.New("rules: there are none, so that everything would be denied"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &Policy{rules: slices.Clone(rules), fallback: fallback}, nil
}

func (r Rule) check(at string) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(at+format, args...)) }
	if !r.Role.Valid() {
		fault(".role: %q is none of %v", r.Role, Roles())
	}
	if len(r.Subjects) == 0 {
		fault(": names no subjects and no groups")
	}
	for _, s := range r.Subjects {
		kind, name, _ := strings.Cut(s, ":")
		if s != "*" && (!slices.Contains(Kinds(), kind) || name == "") {
			fault(".subjects: %q is neither * nor begins with one of %v and a name", s, Kinds())
		}
		faults = append(faults, checkPattern(at+".subjects", s))
	}
	if len(r.Namespaces) == 0 {
		fault(".namespaces: there are none; \"*\" is all")
	}
	for _, n := range r.Namespaces {
		faults = append(faults, checkPattern(at+".namespaces", n))
	}
	if len(r.Queues) > 0 && r.Role == Node {
		fault(".queues: a node is one for all queues")
	}
	for _, q := range r.Queues {
		faults = append(faults, checkPattern(at+".queues", q))
	}
	if r.Role == Node && !slices.Equal(r.Namespaces, []string{Everywhere}) {
		fault(".namespaces: a node is one for all namespaces, \"*\"")
	}
	return errors.Join(append(faults, r.Limits.Check(at+".limits"))...)
}

func checkPattern(at, pattern string) error {
	if pattern == "" {
		return fmt.Errorf("%s: an entry is empty", at)
	}
	if strings.Contains(strings.TrimSuffix(pattern, "*"), "*") {
		return fmt.Errorf("%s: %q has a * that is not at its end", at, pattern)
	}
	if err := CheckName(pattern); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// DefaultRate is how many calls a second an identity may make at a node if nothing says
// otherwise. The Go client, which brings calls together, stays far below it.
const DefaultRate = 10_000

// MaxRate is the greatest rate of calls.
const MaxRate = 1_000_000

// Unlimited stands for no limit of calls or connections where there is one by role.
const Unlimited = math.MaxInt32

// roleLimits are the calls and connections at once of an identity with a role, where
// nothing else says how many. Workers of a fleet share an identity, and each has a
// connection and a stream; people and programs have a few. None: without a role.
func roleLimits(r Role) Limits {
	switch r {
	case Worker:
		return Limits{Calls: 20_000, Connections: 10_000}
	case Node:
		return Limits{Calls: Unlimited, Connections: Unlimited}
	case "":
		return Limits{Calls: 32, Connections: 32}
	}
	return Limits{Calls: 2_000, Connections: 1_000}
}

// WithRoleLimits bounds the calls and connections of identities for whom neither a rule nor
// the fallback does, by their roles: the role that has most counts.
func (p *Policy) WithRoleLimits() *Policy {
	with := *p
	with.byRole = true
	return &with
}

// roleLimitsOf are those of the roles of an identity.
func (p *Policy) roleLimitsOf(id Identity) Limits {
	most := roleLimits("")
	for i := range p.rules {
		if r := &p.rules[i]; r.means(id) {
			l := roleLimits(r.Role)
			most.Calls, most.Connections = max(most.Calls, l.Calls), max(most.Connections, l.Connections)
		}
	}
	return most
}

// Check says what is wrong with limits that stand at a place.
func (l Limits) Check(at string) error {
	if !(l.Rate >= 0 && l.Rate <= MaxRate) || l.Burst < 0 || l.Calls < 0 || l.Connections < 0 {
		return fmt.Errorf("%s: want rate from 0 to %d and nothing negative", at, MaxRate)
	}
	if l.Burst > 0 && l.Rate == 0 {
		return fmt.Errorf("%s: burst needs rate", at)
	}
	return nil
}

// Decision is an answer. Reason says why for the log of the node; callers are told
// only what they lack.
type Decision struct {
	Allowed bool
	Rule    int // which of the rules allowed it; -1: none
	Reason  string
}

// Allows decides whether an identity has a permission in a namespace, for a queue
// where one is concerned. "" stands for all queues: only a rule without queues allows it.
func (p *Policy) Allows(id Identity, want Permission, namespace, queue string) Decision {
	return p.decide(id, want, func(r *Rule) bool { return r.covers(namespace, queue) })
}

// AllowsSome decides whether an identity has a permission for any of the queues of a
// namespace, whichever they are.
func (p *Policy) AllowsSome(id Identity, want Permission, namespace string) Decision {
	return p.decide(id, want, func(r *Rule) bool { return r.reaches(namespace) })
}

func (p *Policy) decide(id Identity, want Permission, covers func(*Rule) bool) Decision {
	if id.Subject == "" {
		return Decision{Rule: -1, Reason: "nobody was authenticated"}
	}
	if want == Anyone {
		return Decision{Allowed: true, Rule: -1, Reason: "allowed to anyone authenticated"}
	}
	known, capable := false, false
	for i := range p.rules {
		r := &p.rules[i]
		if !r.means(id) {
			continue
		}
		known = true
		if !r.Role.Has(want) {
			continue
		}
		capable = true
		if want == AnyRole || covers(r) {
			return Decision{Allowed: true, Rule: i, Reason: "allowed by a rule"}
		}
	}
	switch {
	case !known:
		return Decision{Rule: -1, Reason: "no rule means this identity"}
	case !capable:
		return Decision{Rule: -1, Reason: "no role of this identity allows it"}
	}
	return Decision{Rule: -1, Reason: "its roles are for other namespaces or queues"}
}

func (r *Rule) means(id Identity) bool {
	return slices.ContainsFunc(r.Subjects, id.Is)
}

// covers tells whether the rule is about this place. "*" stands for all namespaces
// in a question, too, where no other pattern than "*" fits it.
func (r *Rule) covers(namespace, queue string) bool {
	if !r.reaches(namespace) {
		return false
	}
	return len(r.Queues) == 0 || queue != "" && matchAny(r.Queues, queue)
}

// reaches reports whether the rule is about any queue of a namespace.
func (r *Rule) reaches(namespace string) bool {
	return namespace != "" && matchAny(r.Namespaces, namespace)
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Match(p, name) })
}

// LimitsOf are the limits of an identity: each from the first rule that means it
// and sets it, else from the fallback.
func (p *Policy) LimitsOf(id Identity) Limits {
	l := Limits{}
	for i := range p.rules {
		if r := &p.rules[i]; r.Limits != (Limits{}) && r.means(id) {
			l = l.or(r.Limits)
		}
	}
	l = l.or(p.fallback)
	if p.byRole {
		l = l.or(p.roleLimitsOf(id))
	}
	return l.withoutUnlimited()
}

// withoutUnlimited has zero for no limit.
func (l Limits) withoutUnlimited() Limits {
	if l.Calls >= Unlimited {
		l.Calls = 0
	}
	if l.Connections >= Unlimited {
		l.Connections = 0
	}
	return l
}

func (l Limits) or(o Limits) Limits {
	if l.Rate == 0 {
		l.Rate, l.Burst = o.Rate, o.Burst
	}
	if l.Calls == 0 {
		l.Calls = o.Calls
	}
	if l.Connections == 0 {
		l.Connections = o.Connections
	}
	return l
}

// Grant is a role that a rule gives to an identity.
type Grant struct {
	Role       Role
	Namespaces []string // patterns; "*" is all
	Queues     []string // patterns; none: all
}

// Grants lists the roles that an identity has, in the order of the rules.
func (p *Policy) Grants(id Identity) []Grant {
	var grants []Grant
	for i := range p.rules {
		if r := &p.rules[i]; r.means(id) {
			grants = append(grants, Grant{Role: r.Role, Namespaces: slices.Clone(r.Namespaces), Queues: slices.Clone(r.Queues)})
		}
	}
	return grants
}

// Gives tells whether any rule gives a role.
func (p *Policy) Gives(role Role) bool {
	return slices.ContainsFunc(p.rules, func(r Rule) bool { return r.Role == role })
}
