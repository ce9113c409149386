// Package payload parses and validates the payloads of the ready-made handlers, http and exec.
// Nodes do so when a job is registered, the command line when it reads a file, and workers before
// they run an attempt. All use the same rules, so that a payload that a node accepts does not fail
// at the first run because of its form.
//
// It checks nothing that depends on a worker: which programs, variables and networks are allowed,
// and which secrets exist.
//
// Invariants:
//
//  1. [Validate] lists every fault of a payload at once, up to a bound, each with the path of its
//     field ("headers[\"X-A\"]", "argv[0]"); "" is the payload as a whole.
//  2. A fault never quotes the value of a field that may hold a secret: URLs, headers, bodies, arguments and
//     variables.
//  3. What ParseHTTP or ParseExec refuses, Check refuses. Check refuses more: what parses, and yet no
//     worker would run.
//  4. Names of fields count in any letter case, as encoding/json has it.
package payload
