// Package policypb writes the policies of package backoff in the words of the API, and
// reads those words: for servers, and for a command line that shows and sends policies
// without asking one.
//
// Invariants:
//
//  1. What is written has each field set that has a default, also where it is zero: who
//     reads it takes an unset one for its default, and no cap is not the default cap.
//  2. Each value of the model has a word of its own, and each word but the unspecified
//     one a value.
package policypb
