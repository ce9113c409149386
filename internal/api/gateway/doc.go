// Package gateway serves the gRPC API as JSON over HTTP: REST by the google.api.http annotations of the protos,
// events as server-sent events or JSON lines, and the OpenAPI document.
//
// # Model
//
// A [Gateway] is a gRPC client of the nodes. It has no rights of its own: each call carries the bearer token of the
// HTTP request, and the nodes authenticate, authorize, count and audit it as they do every call. A call passes four
// steps: the checks of every request (checks.go), the connection of its credential (credentials.go), the generated
// translation (rest.go) or the event streams (events.go), and the error as google.rpc.Status in JSON (errors.go).
//
// # Callers do not share connections
//
// Nodes bound what one connection may do before its caller is authenticated, count connections and calls for each
// identity, and cache the last credential on the connection. A connection with the calls of many callers would
// defeat that: the first valid token would open it for strangers, who could then send what they like, and refused
// calls of one caller could close the connection of others. Therefore each credential has a connection of its own,
// and nodes judge it as if the caller had connected directly. Connections that are not used are closed.
//
// A new credential is verified first, by WhoAmI, before anything of the body is read. Verifications are few at a
// time, in total and for each remote address, so that strangers hold only that many connections to the nodes, far
// fewer than nodes grant to one address. A credential that nodes reject is forgotten, also later. Where nodes do not
// authenticate callers, requests without a credential share one connection, and nodes count all of them for the
// host of the gateway.
//
// # The console
//
// The gateway also serves the web console (console.go): files that are the same for everybody, and call the API. A
// person who has signed in has the token in a sealed cookie (session.go), which counts as the token of the request.
//
// # Invariants
//
//  1. Beside the credential only traceparent and tracestate of a request reach a node, and the fields of the message.
//     A client certificate of the gateway never speaks for a caller: with one, requests without a token are refused.
//  2. Nothing of a request body is read before the caller is verified, unless nodes do not authenticate callers.
//  3. Connections, requests, event streams and bytes are bounded, in total and for each remote address or credential.
//  4. An event stream delivers each batch of events atomically with the token that continues after it. A reader that
//     does not keep up is disconnected, and continues from its last token at any gateway.
//  5. A request with a host that is not allowed, or a changing request from another origin, reaches no node. There
//     are no CORS headers: scripts of other origins cannot read responses.
package gateway
