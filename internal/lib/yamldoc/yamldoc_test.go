package yamldoc

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func read(text string, b *Budget) (n int, err error) {
	r := NewReader([]byte(text), b)
	for {
		if _, err := r.Next(); err != nil {
			if Ended(err) {
				err = nil
			}
			return n, err
		}
		n++
	}
}

// TestWhatIsTooMuch: the bounds are those of what a text stands for.
func TestWhatIsTooMuch(t *testing.T) {
	aliases := func(size, n int) string {
		return "a: &a " + strings.Repeat("x", size) + "\nb:\n" + strings.Repeat("- *a\n", n)
	}
	bomb := "a0: &a0 [x, x]\n"
	for i := 1; i < 60; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i, i, i-1, i-1)
	}
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "k%d: 1\n", i)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"small":            {"a: 1\n---\nb: 2\n", ""},
		"some aliases":     {aliases(1<<20, 20), ""},
		"one text, often":  {aliases(1<<20, 999), "stands for more than 32 MiB"},
		"a small one":      {aliases(64<<10, 3000), "stands for more than 32 MiB"},
		"tiny, very often": {aliases(1000, 100_000), "stands for more than 32 MiB"},
		"merges": {"a: &a {x: " + strings.Repeat("x", 1<<20) + "}\n" + strings.Repeat("", 1) + func() (s string) {
			for i := range 64 {
				s += fmt.Sprintf("j%d: {<<: *a}\n", i)
			}
			return s
		}(), "stands for more than 32 MiB"},
		"a bomb":              {bomb, "stands for more than 32 MiB"},
		"of itself":           {"a: &a [*a]\n", "stands for more than 32 MiB"},
		"many values":         {"[" + strings.Repeat("a,", MaxMarks+1) + "]", "commas and line breaks"},
		"many lines":          {strings.Repeat("\n", MaxMarks+1), "commas and line breaks"},
		"documents in all":    {strings.Repeat(aliases(1<<20, 20)+"---\n", 4), "all files together"},
		"many keys":           {keys(MaxKeys), ""},
		"a key more":          {keys(MaxKeys + 1), fmt.Sprintf("line 1: a mapping of more than %d keys", MaxKeys)},
		"very many keys":      {"id: a\nlabels:\n" + strings.ReplaceAll("  "+keys(100_000), "\n", "\n  "), "line 3: a mapping"},
		"keys of JSON":        {"{\"labels\": {" + strings.TrimSuffix(strings.Repeat("\"k\": 1, ", MaxKeys+1), ", ") + "}}", "a mapping of more than"},
		"flow, in a list":     {"- {" + strings.Repeat("k: 1, ", MaxKeys+1) + "}", "a mapping of more than"},
		"anchored, unused":    {"a: &a {" + strings.Repeat("k: 1, ", MaxKeys+1) + "}", "a mapping of more than"},
		"wide, often":         {"a: &a {" + strings.Repeat("k: 1, ", MaxKeys) + "}\nb:\n" + strings.Repeat("- *a\n", 200), "stands for more than 32 MiB"},
		"many documents":      {strings.Repeat("a\n---\n", MaxDocuments-1) + "a\n", ""},
		"a document more":     {strings.Repeat("a\n---\n", MaxDocuments) + "a\n", "more than 20000 documents"},
		"a text that is long": {"a: " + strings.Repeat("x", 30<<20), ""},
	} {
		if _, err := read(c.text, &Budget{}); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// Files share a budget.
	var b Budget
	for i := range 4 {
		if _, err := read(aliases(1<<20, 20), &b); (err == nil) != (i < 3) {
			t.Errorf("file %d: %v", i, err)
		}
	}
}

// TestRefusingIsCheap: what is refused takes a small multiple of its text.
func TestRefusingIsCheap(t *testing.T) {
	text := "a: &a " + strings.Repeat("x", 1<<20) + "\nb:\n" + strings.Repeat("- *a\n", 999)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := read(text, &Budget{}); err == nil {
		t.Fatal("it was read")
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
		t.Errorf("%d MiB for a text of 1 MiB", took>>20)
	}
}

// TestOneDocument: files of one document have the same bounds.
func TestOneDocument(t *testing.T) {
	type file struct {
		Names map[string]int `yaml:"names"`
	}
	for text, want := range map[string]string{
		"names: {a: 1}": "", "": "EOF", "name: {}": "name", "names: {a: 1}\n---\nnames: {}": "more than one document",
		"names: {a: 1, a: 2}": "already defined",
		"names: {" + strings.Repeat("k: 1, ", MaxKeys+1) + "}": "a mapping of more than",
		"names: {a: 1}\n---\n&a [*a]":                          "more than 32 MiB",
	} {
		var f file
		if err := Unmarshal([]byte(text), &f); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}
