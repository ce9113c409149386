// Package archtest tests the architecture: which package of this module may import which.
// The pure core stays testable without IO only as long as nothing brings IO into it.
//
// groups_test.go has the folders of internal, their roles and what they import;
// table_test.go has a row for each package, with reasons. A package without a row fails the
// test, so that every new one is placed on purpose.
package archtest
