// Package faultproxy is a TCP proxy that breaks connections in the ways that
// networks do, for tests, one for UDP ([Packets]) that loses packets, and one that
// answers commands of Redis itself ([Answerer]).
//
// A client dials the proxy, the proxy dials the target, and bytes pass in both
// directions until a fault is switched on. What it keeps true:
//
//  1. Bytes that pass are passed in order and unchanged. A connection is cut or
//     stalled; its stream is never altered.
//  2. A cut reply means that the target was sent everything that came before:
//     the request has run, or will, and the client never learns of it.
//  3. Every fault that really hit traffic is counted, so that a test can prove
//     that its fault took place and not only that nothing went wrong.
//  4. When the test ends, no connection and no goroutine is left.
//
// A reply is one chunk that the target sends in one read; for a request and
// reply protocol without pipelining, one answer. Faults may be changed at any
// time and from any goroutine; open connections obey at once.
//
// The package is test support: no product package imports it.
package faultproxy
