package gateway

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fermata-io/fermata/internal/lib/memorybudget"
)

// A body ends when it has too many values, however it is read; texts may contain anything.
func TestValuesOfABodyAreBounded(t *testing.T) {
	const most = 100
	for name, tt := range map[string]struct {
		body string
		ok   bool
	}{
		"few":                 {`{"payloadJson":[` + strings.Repeat("0,", most-3) + `0]}`, true},
		"too many":            {`{"payloadJson":[` + strings.Repeat("0,", most) + `0]}`, false},
		"nested":              {strings.Repeat("[", most+1), false},
		"objects":             {`[` + strings.Repeat(`{},`, most) + `{}]`, false},
		"a text":              {`{"a":"` + strings.Repeat("[,{", most) + `"}`, true},
		"a text with quotes":  {`{"a":"` + strings.Repeat(`\",`, most) + `"}`, true},
		"a text that has end": {`{"a":"\\"` + strings.Repeat(",", most+1), false},
	} {
		for how, reader := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader,
		} {
			r := &bodyReader{memory: memorybudget.New(maxMemory), share: "anna", maxBytes: maxBodyBytes, maxValues: most,
				extend: func(int) {}}
			content, err := r.read(t.Context(), reader(strings.NewReader(tt.body)))
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, errBodyTooLarge) || err == nil && string(content) != tt.body {
				t.Errorf("%s, %s: error %v after %d values", name, how, err, r.values.values)
			}
			r.release()
			if used := r.memory.InUse(); used != 0 {
				t.Errorf("%s, %s: %v bytes are still taken", name, how, used)
			}
		}
	}
}

// TestLevelsOfABodyAreBounded checks that a body with too many lists and objects within each other is refused, however
// it is read.
func TestLevelsOfABodyAreBounded(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`{"a":[`, n/2) + strings.Repeat("]}", n/2) }
	for body, want := range map[string]error{
		nested(maxBodyDepth):                      nil,
		nested(maxBodyDepth + 2):                  errBodyTooDeep,
		strings.Repeat("[],", 2*maxBodyDepth):     nil,
		`{"a":"` + strings.Repeat("[", 200) + `"`: nil,
	} {
		for how, reader := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader,
		} {
			r := &bodyReader{memory: memorybudget.New(maxMemory), share: "anna", maxBytes: maxBodyBytes, maxValues: maxBodyValues,
				extend: func(int) {}}
			if _, err := r.read(t.Context(), reader(strings.NewReader(body))); !errors.Is(err, want) {
				t.Errorf("%.20s, %s: %v, want %v", body, how, err, want)
			}
			r.release()
		}
	}
}
