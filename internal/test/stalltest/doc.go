// Package stalltest measures the time in which a test's machine stood still.
//
// A [Watch] does next to nothing, again and again: by itself, and whatever else it is
// asked to do, a call of a server for instance. What each turn takes longer than it
// should is a [Span] in which the machine stood still, or was so busy with something else
// that it might as well have. A bound of time that a test holds the product against is
// then the documented one and what was seen to be taken from it: it holds on a machine
// that has other things to do, and loses nothing on one that has not.
//
//  1. A span that has ended before it is asked for is among those that are returned.
//  2. What several saw at the same time counts once.
//
// The package is test support: no product package imports it.
package stalltest
