package authz

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// AllNamespaces takes the place of a namespace in requests that concern all namespaces.
const AllNamespaces = "*"

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

// Limits limit one identity on one node. Zero fields are no limit, or leave the limit to [Policy.WithRoleLimits].
type Limits struct {
	Rate         float64 // calls a second
	Burst        int     // calls at once beyond the rate; at least 1 with a rate
	MaxOpenCalls int     // calls and streams that are open at once
	Connections  int     // connections at once
}

// Policy decides. The zero value denies everything.
type Policy struct {
	rules         []Rule
	defaultLimits Limits
	byRole        bool // see WithRoleLimits
	namespaces    []NamespaceLimits
}

// NewPolicy validates rules and makes a policy of them. fallback has the limits of identities to which no rule
// gives any. The error lists everything that is invalid.
func NewPolicy(rules []Rule, fallback Limits) (*Policy, error) {
	faults := []error{fallback.Check("limits")}
	for i, r := range rules {
		faults = append(faults, r.validateAt(fmt.Sprintf("rules[%d]", i)))
	}
	if len(rules) == 0 {
		faults = append(faults, errors.New("rules: required; without rules everything is denied"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &Policy{rules: slices.Clone(rules), defaultLimits: fallback}, nil
}

func (r Rule) validateAt(at string) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(at+format, args...)) }
	if !r.Role.Valid() {
		fault(".role: %q is none of %v", r.Role, Roles())
	}
	if len(r.Subjects) == 0 {
		fault(": subjects or groups are required")
	}
	for _, s := range r.Subjects {
		kind, name, _ := strings.Cut(s, ":")
		if s != "*" && (!slices.Contains(Kinds(), kind) || name == "") {
			fault(".subjects: %q is neither * nor begins with one of %v and a name", s, Kinds())
		}
		faults = append(faults, checkPattern(at+".subjects", s))
	}
	if len(r.Namespaces) == 0 {
		fault(".namespaces: required; \"*\" means all")
	}
	for _, n := range r.Namespaces {
		faults = append(faults, checkPattern(at+".namespaces", n))
	}
	if len(r.Queues) > 0 && r.Role == Node {
		fault(".queues: not allowed for the role node, which is for all queues")
	}
	for _, q := range r.Queues {
		faults = append(faults, checkPattern(at+".queues", q))
	}
	if r.Role == Node && !slices.Equal(r.Namespaces, []string{AllNamespaces}) {
		fault(".namespaces: the role node needs \"*\", all namespaces")
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

// DefaultRate is how many calls a second an identity may make at a node if no limit is set. The Go client
// coalesces calls and stays far below it.
const DefaultRate = 10_000

// MaxRate is the greatest rate of calls.
const MaxRate = 1_000_000

// Unlimited takes away the limit of calls or connections that a role has.
const Unlimited = math.MaxInt32

// roleLimits returns the default limits of concurrent calls and connections for a role. Workers of a fleet share an
// identity, and each has a connection and a stream; people and programs have a few. "" is an identity without a role.
func roleLimits(r Role) Limits {
	switch r {
	case Worker:
		return Limits{MaxOpenCalls: 20_000, Connections: 10_000}
	case Node:
		return Limits{MaxOpenCalls: Unlimited, Connections: Unlimited}
	case "":
		return Limits{MaxOpenCalls: 32, Connections: 32}
	}
	return Limits{MaxOpenCalls: 2_000, Connections: 1_000}
}

// WithRoleLimits returns a policy that limits calls and connections by role where neither a rule nor the default
// limits do. An identity with several roles has the greatest of each.
func (p *Policy) WithRoleLimits() *Policy {
	with := *p
	with.byRole = true
	return &with
}

// roleLimitsOf returns the greatest limits of the roles of an identity.
func (p *Policy) roleLimitsOf(id Identity) Limits {
	most := roleLimits("")
	for i := range p.rules {
		if r := &p.rules[i]; r.matchesIdentity(id) {
			l := roleLimits(r.Role)
			most.MaxOpenCalls, most.Connections = max(most.MaxOpenCalls, l.MaxOpenCalls), max(most.Connections, l.Connections)
		}
	}
	return most
}

// Check validates limits. at is their path in the file, for the error.
func (l Limits) Check(at string) error {
	if !(l.Rate >= 0 && l.Rate <= MaxRate) || l.Burst < 0 || l.MaxOpenCalls < 0 || l.Connections < 0 {
		return fmt.Errorf("%s: want rate from 0 to %d and nothing negative", at, MaxRate)
	}
	if l.Burst > 0 && l.Rate == 0 {
		return fmt.Errorf("%s: burst needs rate", at)
	}
	return nil
}

// Decision is the answer to an access check. Reason is for the log of the node; callers learn only which
// permission is missing.
type Decision struct {
	Allowed bool
	Rule    int // which of the rules allowed it; -1: none
	Reason  string
}

// Allows decides whether an identity has a permission in a namespace and, if the call concerns a queue, for that
// queue. "" stands for all queues: only a rule without queues allows it.
func (p *Policy) Allows(id Identity, want Permission, namespace, queue string) Decision {
	return p.decideByRules(id, want, func(r *Rule) bool { return r.coversQueue(namespace, queue) })
}

// AllowsAnyQueue decides whether an identity has a permission for any of the queues of a
// namespace, whichever they are.
func (p *Policy) AllowsAnyQueue(id Identity, want Permission, namespace string) Decision {
	return p.decideByRules(id, want, func(r *Rule) bool { return r.coversNamespace(namespace) })
}

func (p *Policy) decideByRules(id Identity, want Permission, covers func(*Rule) bool) Decision {
	if id.Subject == "" {
		return Decision{Rule: -1, Reason: "not authenticated"}
	}
	if want == Anyone {
		return Decision{Allowed: true, Rule: -1, Reason: "allowed to anyone authenticated"}
	}
	known, capable := false, false
	for i := range p.rules {
		r := &p.rules[i]
		if !r.matchesIdentity(id) {
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
		return Decision{Rule: -1, Reason: "no rule matches this identity"}
	case !capable:
		return Decision{Rule: -1, Reason: "no role of this identity allows it"}
	}
	return Decision{Rule: -1, Reason: "its roles are for other namespaces or queues"}
}

func (r *Rule) matchesIdentity(id Identity) bool {
	return slices.ContainsFunc(r.Subjects, id.Matches)
}

// coversQueue reports whether the rule applies to a queue of a namespace. The namespace "*" requests all
// namespaces; only the pattern "*" matches it.
func (r *Rule) coversQueue(namespace, queue string) bool {
	if !r.coversNamespace(namespace) {
		return false
	}
	return len(r.Queues) == 0 || queue != "" && matchAny(r.Queues, queue)
}

// coversNamespace reports whether the rule is about any queue of a namespace.
func (r *Rule) coversNamespace(namespace string) bool {
	return namespace != "" && matchAny(r.Namespaces, namespace)
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Match(p, name) })
}

// LimitsOf returns the limits of an identity: each from the first rule that means it
// and sets it, else from the fallback.
func (p *Policy) LimitsOf(id Identity) Limits {
	l := Limits{}
	for i := range p.rules {
		if r := &p.rules[i]; r.Limits != (Limits{}) && r.matchesIdentity(id) {
			l = l.mergeMissing(r.Limits)
		}
	}
	l = l.mergeMissing(p.defaultLimits)
	if p.byRole {
		l = l.mergeMissing(p.roleLimitsOf(id))
	}
	return l.withoutUnlimited()
}

// withoutUnlimited replaces Unlimited by zero, which is no limit.
func (l Limits) withoutUnlimited() Limits {
	if l.MaxOpenCalls >= Unlimited {
		l.MaxOpenCalls = 0
	}
	if l.Connections >= Unlimited {
		l.Connections = 0
	}
	return l
}

func (l Limits) mergeMissing(o Limits) Limits {
	if l.Rate == 0 {
		l.Rate, l.Burst = o.Rate, o.Burst
	}
	if l.MaxOpenCalls == 0 {
		l.MaxOpenCalls = o.MaxOpenCalls
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
		if r := &p.rules[i]; r.matchesIdentity(id) {
			grants = append(grants, Grant{Role: r.Role, Namespaces: slices.Clone(r.Namespaces),
				Queues: slices.Clone(r.Queues)})
		}
	}
	return grants
}

// GrantsRole reports whether any rule grants a role.
func (p *Policy) GrantsRole(role Role) bool {
	return slices.ContainsFunc(p.rules, func(r Rule) bool { return r.Role == role })
}
