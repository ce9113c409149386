package tui

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCleanForeignText(t *testing.T) {
	for in, want := range map[string]string{
		" two\nlines\t": "two lines", "\x1b[2Jgone": "?[2Jgone", "日本": "??", "e\u0301": "e", "Zoë …": "Zoë …",
	} {
		if got := StripControls(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	l := Line{Red.Of("red"), Plain.Of(" plain "), Ruled.Of("ruled ")}
	for _, tt := range []struct{ got, want string }{
		{l.Text(false), "red plain ruled"},
		{l.Text(true), "\x1b[31mred\x1b[0m plain \x1b[2;4mruled \x1b[0m"},
		{l.Clip(6).Text(false), "red p…"},
		{l.Clip(0).Text(true), ""},
		{Left("abc", 5) + "|" + Right("abc", 5) + "|" + Left("abcdef", 4), "abc  |  abc|abc…"},
		{Plural(1, "job") + " " + Plural(2, "job"), "1 job 2 jobs"},
		{FormatCount(9999) + " " + FormatCount(12_345) + " " + FormatCount(3_456_789), "9999 12k 3M"},
		{FormatDuration(4800*time.Millisecond) + " " + FormatDuration(62*time.Minute), "4.8s 1h02m"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
	if l.Width() != 16 {
		t.Errorf("width %d", l.Width())
	}
}

func TestOpenWithoutATerminal(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, ok := On(file); ok {
		t.Error("a file is a screen")
	}
	if _, ok := On(new(bytes.Buffer)); ok {
		t.Error("a buffer is a screen")
	}
	for _, in := range []any{file, strings.NewReader("q")} {
		if _, _, ok := Keys(in.(interface{ Read([]byte) (int, error) })); ok {
			t.Errorf("keys from %T", in)
		}
	}
}

func TestKeysOfOneRead(t *testing.T) {
	for in, want := range map[string][]rune{
		"q": {'q'}, "bn": {'b', 'n'}, "\x1b[A": {0}, "\x1b": {'\x1b'}, "\x03": {3}, "ü": {'ü'},
	} {
		if got := keysOf([]byte(in)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
	out, stop := make(chan rune), make(chan struct{})
	go readKeys(strings.NewReader("sq"), out, stop)
	var got []rune
	for key := range out {
		got = append(got, key)
	}
	if string(got) != "sq" {
		t.Errorf("read %q", string(got))
	}
}
