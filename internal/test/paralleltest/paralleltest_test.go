package paralleltest

import (
	"flag"
	"runtime"
	"testing"
)

// TestRunAtOnce: more tests than processors are allowed, never fewer, and a flag of the command
// line decides.
func TestRunAtOnce(t *testing.T) {
	value := func() string { return flag.Lookup("test.parallel").Value.String() }
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	before := value()
	if err := RunAtOnce(runtime.GOMAXPROCS(0) + 100); err != nil {
		t.Fatal(err)
	}
	if changed := value() != before; changed == given {
		t.Errorf("-parallel is %s after %s; given: %t", value(), before, given)
	}
	now := value() // as if it were given: it has been set
	if err := RunAtOnce(1); err != nil || value() != now {
		t.Errorf("-parallel is %s after %s, %v", value(), now, err)
	}
}
