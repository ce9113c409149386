// Package tlstest makes certificate authorities and certificates for tests, and puts
// them into files the way an operator or Kubernetes would.
package tlstest
