package unixtime

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestConversions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(-1<<42, 1<<42).Draw(t, "ms")
		m, want := Milli(ms), time.UnixMilli(ms)
		if got := m.Time(); !got.Equal(want) || MilliOf(got) != m {
			t.Errorf("Time: %v, want %v", got, want)
		}
		if got := m.Micro(); !got.Time().Equal(want) || got.Milli() != m || MicroOf(want) != got {
			t.Errorf("Micro: %v, %v", got, want)
		}
		d := time.Duration(rapid.Int64Range(-1<<50, 1<<50).Draw(t, "d"))
		if got := m.Add(d); got.Sub(m) != d.Truncate(time.Millisecond) || got.Micro().Sub(m.Micro()) != got.Sub(m) ||
			m.Micro().Add(d).Sub(m.Micro()) != d.Truncate(time.Microsecond) {
			t.Errorf("Add(%v): %v", d, got.Sub(m))
		}
	})
}

func TestPartsOfAUnitAreDropped(t *testing.T) {
	at := time.Unix(1, 2_345_678)
	if m, u := MilliOf(at), MicroOf(at); m != 1002 || u != 1_002_345 || u.Milli() != m {
		t.Errorf("%d ms, %d us", m, u)
	}
	if got := Milli(5).Add(1999 * time.Microsecond); got != 6 {
		t.Errorf("Add: %d", got)
	}
}

// Both are plain numbers in every text form: logs and stored JSON do not change.
func TestTextForms(t *testing.T) {
	raw, err := json.Marshal(struct {
		A Milli
		B Micro `json:"b,omitempty"`
	}{A: 7})
	if err != nil || string(raw) != `{"A":7}` {
		t.Errorf("%s, %v", raw, err)
	}
	if got := fmt.Sprint(Milli(12), Micro(34)); got != "12 34" {
		t.Error(got)
	}
}
