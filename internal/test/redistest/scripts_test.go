package redistest

import (
	"testing"
	"time"
)

func TestScriptClocks(t *testing.T) {
	s := Start(t)
	const script = "local call = redis.call local t = call('time') return t[1] * 1000 + math.floor(t[2] / 1000)"
	run := func(c *ScriptClock, name, text string) int64 {
		t.Helper()
		var args []any
		for _, a := range c.Rewrite([][]byte{[]byte(name), []byte(text), []byte("0")}) {
			args = append(args, a)
		}
		ms, err := s.Client().Do(t.Context(), args...).Int64()
		if err != nil {
			t.Fatal(err)
		}
		return ms
	}
	if err := s.Client().ScriptLoad(t.Context(), script).Err(); err != nil {
		t.Fatal(err)
	}
	moved, stored := NewScriptClock("off"), NewStoredClock("now")
	if unknown := moved.Rewrite([][]byte{[]byte("evalsha"), []byte(sha1Hex(script)), []byte("0")}); string(unknown[1]) != unknownHash {
		t.Errorf("a script that another client loaded is called as %s", unknown[1])
	}
	for _, off := range []time.Duration{0, -30 * time.Second, 90 * time.Second} {
		if off != 0 {
			s.Client().Set(t.Context(), "off", int(off.Seconds()), 0)
		}
		s.Client().Set(t.Context(), "now", 1234567, 0)
		for _, call := range [][2]string{{"eval", script}, {"EVALSHA", sha1Hex(script)}} {
			before := time.Now().Add(off).UnixMilli()
			if got := run(moved, call[0], call[1]); got < before || got > time.Now().Add(off).UnixMilli() {
				t.Errorf("%s with a clock moved by %v: %d, not from %d on", call[0], off, got, before)
			}
			if got := run(stored, call[0], call[1]); got != 1234567 {
				t.Errorf("%s with a stored clock: %d", call[0], got)
			}
		}
	}
	if moved.Asked() != 6 {
		t.Errorf("asked %d times, want 6", moved.Asked())
	}
	for _, plain := range []string{"return 1", sha1Hex("return 1")} {
		name := "EVAL"
		if len(plain) == 40 {
			name = "EVALSHA"
		}
		if got := moved.Rewrite([][]byte{[]byte(name), []byte(plain), []byte("0")}); string(got[1]) != plain || moved.Asked() != 6 {
			t.Errorf("%s of what asks for no time became %q", name, got[1])
		}
	}
	for _, other := range []string{"return 1", scriptTime} {
		if got := moved.Rewrite([][]byte{[]byte("SET"), []byte(other), []byte("x")}); string(got[1]) != other {
			t.Errorf("rewritten: %q", got)
		}
	}
}
