package worker

import (
	"slices"
	"testing"
	"time"
)

// TestConnectFailuresAreLogged at once and again and again, ever more rarely.
func TestConnectFailuresAreLogged(t *testing.T) {
	start := time.Unix(0, 0)
	var r logPacer
	var at []int
	for s := range 300 {
		if r.isDue(start.Add(time.Duration(s) * time.Second)) {
			at = append(at, s)
		}
	}
	if want := []int{0, 5, 15, 35, 75, 135, 195, 255}; !slices.Equal(at, want) {
		t.Errorf("reported after %v s, want %v", at, want)
	}
}
