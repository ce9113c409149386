package gateway

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
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
			b := &limitedBody{ReadCloser: io.NopCloser(reader(strings.NewReader(tt.body))), call: &call{}, maxValues: most}
			_, err := io.ReadAll(b)
			if (err == nil) != tt.ok || b.call.bodyTooLarge.Load() == tt.ok {
				t.Errorf("%s, %s: error %v after %d values", name, how, err, b.values)
			}
		}
	}
}
