package gctune

import (
	"runtime"
	"testing"
)

// nextCollection is the size of the heap at which the next collection begins.
func nextCollection() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NextGC
}

func TestReserveDelaysCollections(t *testing.T) {
	defer func() { ballast = nil }()
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := nextCollection()
	ReserveBallast(BallastSize)
	if after := nextCollection(); after < before+2*BallastSize-BallastSize/4 {
		t.Errorf("the next collection begins at %d, was at %d", after, before)
	}
}

func TestReserveLeavesTheChoiceToPeople(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Setenv("GOGC", "")
		t.Setenv(name, "100")
		ReserveBallast(BallastSize)
		if ballast != nil {
			t.Errorf("%s is set, and ignored", name)
		}
	}
}
