package main

import (
	"slices"
	"testing"
)

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		unit string
		v    float64
		want string
	}{
		{"s", 0, "0 s"}, {"s", .0123, "12.3 ms"}, {"s", .9996, "1 s"}, {"s", 59.99, "1 min"}, {"s", 90, "1.50 min"}, {"s", -2e-6, "-2 µs"}, {"s", 3e-9, "3 ns"}, {"s", 7 * 86400, "7 d"},
		{"ops", .0287, "0.0287/s"}, {"ops", 27.96, "28/s"}, {"ops", 12345, "12.3K/s"}, {"ops", 0, "0/s"},
		{"percentunit", .997, "99.7%"}, {"percentunit", 1, "100%"}, {"short", 20480, "20.5 K"}, {"short", 7, "7"},
		{"bytes", 96469504, "92 MiB"}, {"bytes", 0, "0 B"}, {"Bps", 1.5e6, "1.50 MB/s"}, {"suffix: jobs", 3, "3 jobs"},
	} {
		u, err := unitOf(c.unit)
		if err != nil {
			t.Fatal(err)
		}
		if got := u.text(c.v); got != c.want {
			t.Errorf("%v as %s is %q, want %q", c.v, c.unit, got, c.want)
		}
	}
	if _, err := unitOf("furlong"); err == nil {
		t.Error("a unit that nobody knows is drawn")
	}
}

func TestTicksAreRound(t *testing.T) {
	for _, c := range []struct {
		unit      string
		low, high float64
		n         int
		want      []string
	}{
		{"s", 0, 2.6, 3, []string{"0 s", "1 s", "2 s"}},
		{"s", 0, .0131, 3, []string{"0 ms", "5 ms", "10 ms"}},
		{"short", -5, 5, 2, []string{"-5", "0", "5"}},
		{"ops", 0, .16, 3, []string{"0.0/s", "0.1/s"}},
		{"percentunit", 0, 1, 4, []string{"0%", "50%", "100%"}},
	} {
		_, got := units[c.unit].ticks(c.low, c.high, c.n)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v to %v %s: %q, want %q", c.low, c.high, c.unit, got, c.want)
		}
	}
}

func TestDecimalsOfThePanelCount(t *testing.T) {
	none := 0
	p := &panel{}
	p.FieldConfig.Defaults.Decimals = &none
	if got := p.format(thousands, 5.01); got != "5" {
		t.Errorf("5.01 without decimals is %s", got)
	}
	if got := p.format(thousands, 5010); got != "5.01 K" {
		t.Errorf("5010 without decimals is %s", got)
	}
}
