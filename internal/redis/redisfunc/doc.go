// Package redisfunc builds Redis Functions libraries from the scripts that nodes otherwise send by
// EVAL, so that their Redis user needs no permission to load code.
//
// A library has one function for each script. The body of the function is the unchanged script:
// KEYS and ARGV, globals of a script, are the parameters of its function.
//
// Invariants:
//
//  1. A library's name ends with a hash of its content, and each function's name begins with
//     that of its library. So libraries of two versions can be on one server, a node calls
//     the code that it was built with or gets an error, and loading a library again
//     changes nothing.
//  2. A library consists of constants of the binary, and contains no input.
package redisfunc
