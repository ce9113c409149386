// Package layers holds the test that keeps the house of floors standing: which
// package of this module may import which, as a table with reasons. Fermata's
// pure core stays testable without IO only as long as nothing drags IO into it.
//
// The table is in table_test.go. A package that it does not know fails the
// test, so that every new one is placed on purpose.
package layers
