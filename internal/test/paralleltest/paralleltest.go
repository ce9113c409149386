// Package paralleltest sets how many parallel tests of a package run at once.
//
// Go's default is the number of processors. Tests that wait most of their time, for a lease
// to end or for another process, then leave the processors idle.
//
// The package is test support: no product package imports it.
package paralleltest

import (
	"flag"
	"runtime"
	"strconv"
)

// RunAtOnce lets n parallel tests run at once, or as many as there are processors if that is
// more. The flag -parallel, if it is given, decides instead. TestMain calls it before it runs
// the tests; it parses the flags.
func RunAtOnce(n int) error {
	flag.Parse()
	const parallel = "test.parallel"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if given {
		return nil
	}
	return flag.Set(parallel, strconv.Itoa(max(n, runtime.GOMAXPROCS(0))))
}
