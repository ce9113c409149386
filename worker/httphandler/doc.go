// Package httphandler makes a handler that sends one HTTP request an attempt.
//
// The payload is JSON:
//
//	{
//	  "method": "POST",                     // GET when unset; or HEAD, PUT, PATCH, DELETE, OPTIONS
//	  "url": "https://example.com/hook",    // http or https
//	  "headers": {"Content-Type": "application/json"},
//	  "body": "{}",                         // or "body_base64"
//	  "expected_status": ["200-299", "404"],// 200-299 when unset
//	  "follow_redirects": "keep_method",    // the default; or as_get, none
//	  "timeout": "5s",                      // beside the attempt's own
//	  "max_body_bytes": 65536               // how much of the answer is read; 1 MiB when unset, and at most
//	}
//
// A header may refer to secrets, "Authorization": "Bearer ${secret:billing-token}":
// see package secrets. They go to the origin of url, if the secret allows it.
//
// The headers Fermata-Run, Fermata-Attempt and Fermata-Token are added; a
// receiver that refuses tokens smaller than the greatest it has seen for a job is
// safe from attempts that were superseded. Fermata-Nominal-Time is when the run was
// to be by its schedule, Fermata-Due-Time that after jitter and backoff, both in UTC
// as 2026-01-31T12:00:00.000Z: what a receiver calculates with in place of its own
// clock. traceparent and tracestate are added for a traced run, where the payload
// does not set them. The output is JSON with status, bytes,
// duration_ms, and the beginning of the answer's body.
//
// A request on a kept connection that the server closes meanwhile is sent again on
// another, whatever its method: a receiver may see one attempt twice, with one token. A
// redirect is not followed where expected_status has its status. One that would make a GET
// without a body of the request fails the run at once, unless follow_redirects is as_get.
//
// Every other fault is a plain failure, a payload that makes no sense as well: the job
// backs off, and its owner corrects it. A Retry-After header of an unexpected
// answer is passed on.
//
// Invariants:
//
//  1. A connection is made only to public addresses, at the ports of Options.Ports,
//     and to those that Options.Allow holds, checked after name resolution, for
//     redirects too.
//  2. At most 3 redirects are followed, none from https to http. One that leads to
//     another origin loses the payload's headers and the fencing token, which no
//     further one gets back.
//  3. At most 1 MiB of an answer is read, decompressed, and it may not pause for
//     longer than Options.IdleTimeout.
//  4. Errors name host and path of a URL, never its user or query.
//     They do not hold the addresses that names have, nor those of the worker and its
//     resolver, and do not say whether there is a name that leads where nothing may be reached.
//  5. A secret stands in no error and no output, even if the receiver sends it back.
package httphandler
