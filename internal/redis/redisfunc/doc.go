// Package redisfunc makes libraries of Redis Functions out of the scripts that the
// product otherwise sends by EVAL, so that its user needs no right to bring code along.
//
// A library holds one function for each script, whose body is the script as it is: KEYS
// and ARGV, which a script finds as globals, are the parameters of its function.
//
// Invariants:
//
//  1. A library's name ends in a hash of all that is in it, and each function's name
//     begins with that of its library. So the libraries of two versions can be on one
//     server together, a node calls the code it was built with or gets an error, and
//     loading the same one again changes nothing.
//  2. What is in a library are constants of the binary. Nothing of it is input.
package redisfunc
