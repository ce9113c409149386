// Package dex tests the sign-in of people against Dex, an OpenID Connect provider that this project did not write: the
// binaries of Fermata, a node that verifies by the issuer's keys, and the pages that a user sees. It is a module of its
// own, as Dex depends on much that the scheduler does not.
package dex
