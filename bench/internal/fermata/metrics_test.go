package fermata

import "testing"

func TestParseMetrics(t *testing.T) {
	m := parseMetrics(`# HELP a of it
a_total{x="1 2",y="b"} 3
a_total{x="2",y="b"} 4e1
a_total_more 100
plain 5
`)
	if v := m.Sum("a_total"); v != 43 {
		t.Errorf("sum %v", v)
	}
	if v := m.Sum("a_total", `x="2"`, `y="b"`); v != 40 {
		t.Errorf("sum of one %v", v)
	}
	if m.Sum("plain") != 5 || m.Sum("none") != 0 {
		t.Errorf("%v", m)
	}
}
