package gateway

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFewAddressesLeavePlaces: addresses that take all that they may leave places to others, which do not wait.
func TestFewAddressesLeavePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, most := range []int{maxUnverified, maxVerifications, maxWithoutRole} {
			waited, unwaited := newPlaces(most), newPlaces(most)
			for i := range 4 {
				address := fmt.Sprint("greedy ", i)
				for range most {
					go waited.take(t.Context(), address)
					_, _ = unwaited.tryTake(address)
				}
			}
			synctest.Wait() // no time passes
			began := time.Now()
			if _, ok := waited.take(t.Context(), "new"); !ok || time.Since(began) > 0 {
				t.Errorf("%d places: a new address gets one after %v: %v", most, time.Since(began), ok)
			}
			if _, ok := unwaited.tryTake("new"); !ok {
				t.Errorf("%d places: a new address gets none", most)
			}
		}
		time.Sleep(2 * placeWait) // of the bubble: all requests that wait are refused
	})
}

// TestTurnsOfPlaces: a place that becomes free is for the address that has the fewest, and another one waits no longer
// than until it may have one.
func TestTurnsOfPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(16)
		held := map[string][]func(){}
		for _, address := range []string{"few", "many", "many", "many", "many", "c", "c", "c", "d", "d", "e", "e",
			"f", "g", "h", "i"} {
			release, ok := p.tryTake(address)
			if !ok {
				t.Fatalf("%s finds no place of %d that are left", address, 16-p.inUse())
			}
			held[address] = append(held[address], release)
		}
		var granted []string
		var waiting sync.WaitGroup
		for _, address := range []string{"few", "none"} {
			waiting.Go(func() {
				_, ok := p.take(t.Context(), address)
				if ok {
					granted = append(granted, address)
				}
			})
			synctest.Wait()
		}
		for i, want := range []string{"[none]", "[none]", "[none]", "[none]"} {
			held["many"][i]()
			synctest.Wait()
			if got := fmt.Sprint(granted); got != want {
				t.Errorf("after %d are free, places have %v, want %v", i+1, got, want)
			}
		}
		held["few"][0]()
		waiting.Wait()
		if got := fmt.Sprint(granted); got != "[none few]" {
			t.Errorf("places have %v", got)
		}
	})
}
