package redistest

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

// tiesChildren reports whether promise 3 of the package holds for a binary that
// is killed.
const tiesChildren = runtime.GOOS == "linux"

// startOrphan plays a test binary that is killed in the middle: it starts a
// server, prints its address and never comes to its cleanup.
func startOrphan() {
	fmt.Println(Start(&orphanTB{dir: os.Getenv(orphanEnv)}).Addr())
	select {}
}

// orphanTB is the little of a test that Start needs when all goes well.
type orphanTB struct {
	testing.TB
	dir string
}

func (o *orphanTB) Helper()         {}
func (o *orphanTB) TempDir() string { return o.dir }
func (o *orphanTB) Cleanup(func())  {}

func (o *orphanTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
