// Package authz says who may do what: identities, roles, rules, and the decision
// that follows from them. It is pure: the same policy gives the same answer
// everywhere, and no answer depends on what exists.
//
// An [Identity] is who calls, as its credential proved. A [Rule] gives one [Role]
// to subjects, in namespaces and, for workers, in queues. A [Policy] is a list of
// rules; it only ever adds up: there are no rules that take away, so their order
// does not matter.
//
//	identity --subjects--> rule --role--> permission
//	                        |--namespaces (exact, prefix*, *)
//	                        `--queues     (of workers)
//
// Invariants:
//
//  1. What no rule allows is denied; an empty policy denies everything.
//  2. A question about all namespaces ([Everywhere]) is allowed only by a rule for
//     all of them.
//  3. Another rule never takes anything away.
//  4. Whatever ends in * matches by prefix; nothing else is a pattern.
package authz
