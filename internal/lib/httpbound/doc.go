// Package httpbound bounds what the clients of an HTTP server take of a process before and while a handler answers:
// connections, and the memory of headers.
//
// net/http reads all headers of a request before it calls a handler, and keeps them until the handler has returned. It
// makes some 250 KiB of 20 KiB of short header lines. So
//   - few connections are of HTTP/2, which has many requests at once;
//   - a new connection beyond the bounds takes the place of one for which no handler runs, of the host that has most;
//     if there is none, it is closed at once;
//   - headers of more than freeHeaderBytes take memory of a budget while they arrive, in equal parts for the hosts that
//     send such ones, and a connection that gets none is closed;
//   - a request with more than maxHeaderLines is refused with 431, and its headers are freed before that.
//
// Invariant: until a handler is called, the headers of a connection take at most the free part and what the budget has
// granted, with memoryPerByte for each byte. Afterwards they have at most maxHeaderLines lines of MaxHeaderBytes in all.
//
// Invariant: a handler that runs has its connection, and a connection that was closed to make room has no handler
// called.
package httpbound
