// Package gateway has the generated translation of the API to JSON over HTTP, in packages below it, and the OpenAPI
// document. It is apart from package fermatav1, so that programs that only call the API do not link it.
package gateway

import _ "embed"

// OpenAPI is the description of the API over HTTP, OpenAPI 3.1 in JSON. It must not be changed.
//
//go:embed openapi.json
var OpenAPI []byte
