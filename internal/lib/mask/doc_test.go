package mask

import (
	"os"
	"strings"
	"testing"
)

// The examples of the package comment are masked.
func TestExamplesOfTheComment(t *testing.T) {
	comment, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var m Masker
	m.Add(`a/b"c`)
	for _, form := range []string{
		`a/b"c`, `a\/b\"c`, `a\u002fb\u0022c`, `a\u{2f}b\u{22}c`, `a\x2fb\x22c`, `a\57b\42c`, `a%2fb%22c`, `a%u002fb%u0022c`,
		`a/b&quot;c`, `a&#47;b&#34;c`, `a&#x2f;b&#x22;c`, `a=2Fb=22c`, `a/b""c`, `YS9iImM=`, `612f622263`, `61:2f:62:22:63`,
		`0x61, 0x2f, 0x62, 0x22, 0x63`, `a\\/b\\\"c`,
	} {
		if !strings.Contains(string(comment), form) {
			t.Errorf("the comment does not have the example %s", form)
		}
		got := string(m.MaskText([]byte("<" + form + ">")))
		// The padding of base64 and the first 0x may stay.
		if got != "<"+Mark+">" && got != "<"+Mark+"=>" && got != "<0x"+Mark+">" {
			t.Errorf("%s became %s", form, got)
		}
	}
}
