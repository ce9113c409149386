package redisd

import (
	"strings"
	"testing"
)

func TestCommandTable(t *testing.T) {
	c := parseCommand("calls=10,usec=25,usec_per_call=2.50,rejected_calls=0,failed_calls=0")
	if c != (Command{10, 25}) {
		t.Fatalf("%+v", c)
	}
	got := CommandTable(map[string]Command{"zadd": {4, 5}, "get": {1, 1}}, map[string]Command{"zadd": c, "get": {1, 1}, "hset": {2, 40}}, 4)
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[1], "hset") || !strings.HasPrefix(lines[2], "zadd") {
		t.Fatalf("got\n%s", got)
	}
	if f := strings.Fields(lines[2]); f[1] != "6" || f[2] != "20" || f[4] != "1.5000" || f[5] != "5.000" {
		t.Errorf("%q", f)
	}
}
