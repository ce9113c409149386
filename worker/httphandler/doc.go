// Package httphandler provides a handler that sends one HTTP request per attempt.
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
//	  "timeout": "5s",                      // in addition to the attempt's timeout
//	  "max_body_bytes": 65536               // maximum size of the response; default and maximum 1 MiB
//	}
//
// A header may refer to secrets, "Authorization": "Bearer ${secret:billing-token}":
// see package secrets. They go to the origin of url, if the secret allows it.
//
// The headers Fermata-Run, Fermata-Attempt and Fermata-Token are added. A receiver that
// refuses tokens smaller than the greatest it has seen for a job is safe from superseded
// attempts. Fermata-Nominal-Time is the scheduled time, and Fermata-Due-Time the time after
// jitter and backoff, both in UTC as 2026-01-31T12:00:00.000Z; a receiver can calculate with
// them instead of its own clock. traceparent and tracestate are added for a traced run, unless
// the payload sets them. The output is JSON with status, bytes, duration_ms, and the start of
// the response body.
//
// If the server closes a kept connection when a request arrives, the request is sent again on
// another connection, for every method: a receiver may see one attempt twice, with one token. A
// redirect is not followed if its status is in expected_status. A redirect that would turn the
// request into a GET without a body fails the run at once, unless follow_redirects is as_get.
//
// All other errors, including an invalid payload, fail the attempt: the job backs off, and its
// owner corrects it. The Retry-After header of an unexpected response sets the next delay.
//
// Invariants:
//
//  1. Connections are made only to public addresses at the ports of Options.Ports, and to the
//     networks of Options.Allow. This is checked after name resolution, also for redirects.
//  2. At most 3 redirects are followed, none from https to http. A redirect to another origin
//     loses the payload's headers and the fencing token, and so do all that follow it.
//  3. At most 1 MiB of a response body is read, decompressed, and 64 KiB more before that. It may
//     not pause for longer than Options.IdleTimeout.
//  4. Errors contain scheme, host and path of a URL, never its user, query or fragment. Segments of
//     16 bytes or more, which may be credentials, are shown as [..]. So it is in spans. Errors
//     contain neither the addresses of names nor those of the worker and its resolver, and they do
//     not reveal whether a name exists that leads to a forbidden address.
//  5. No error and no output contains a secret, even if the receiver sends it back.
//
// The HTTP client of the standard library writes to the standard logger of package log when a
// receiver sends an answer that nobody asked for, and quotes it, with whatever it has of the
// request. The commands of Fermata discard that logger. A program of your own should do so too,
// by log.SetOutput(io.Discard). Do not call slog.SetDefault after it, which sends the standard
// logger to that one.
package httphandler
