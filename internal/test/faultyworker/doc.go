// Package faultyworker is a worker with the check handlers that has at most one fault, chosen by name. It is a second
// implementation of the protocol, on the generated stub, for tests of the check of workers.
//
// Without a fault it follows the protocol. Each fault is a condition w.has(name) at the place where it breaks a rule.
package faultyworker
