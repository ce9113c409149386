// Package authz decides who may do what: it holds identities, roles and rules, and evaluates
// them for a call (RBAC). It is pure: the same policy gives the same answer on every node, and
// no answer depends on what exists.
//
// An [Identity] is an authenticated caller. A [Rule] grants one [Role] to subjects, in
// namespaces and, for workers, in queues. A [Policy] is a list of rules. Rules only grant;
// none denies, so their order does not matter.
//
//	identity --subjects--> rule --role--> permission
//	                        |--namespaces (exact, prefix*, *)
//	                        `--queues     (of workers)
//
// Invariants:
//
//  1. What no rule allows is denied; an empty policy denies everything.
//  2. A request for all namespaces ([AllNamespaces]) is allowed only by a rule for
//     all of them.
//  3. An additional rule never removes a permission.
//  4. A pattern that ends in * matches by prefix. Every other pattern matches exactly.
package authz
