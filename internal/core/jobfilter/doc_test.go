package jobfilter_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/jobfilter"
)

var update = flag.Bool("update", false, "write the table of fields into docs/how-to/find-jobs.md")

// TestFieldsAreDocumented compares the fields with the table of the documentation.
func TestFieldsAreDocumented(t *testing.T) {
	const page, begin, end = "../../../docs/how-to/find-jobs.md",
		"<!-- fields: written by `go test ./internal/core/jobfilter -update` -->\n", "<!-- end of fields -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("there is no table of fields")
	}
	table := "| field | kind | meaning |\n| --- | --- | --- |\n"
	for _, f := range jobfilter.Fields() {
		meaning := f.Meaning
		if len(f.Choices) > 0 {
			meaning += ": `" + strings.Join(f.Choices, "`, `") + "`"
		}
		table += fmt.Sprintf("| `%s` | %s | %s |\n", f.Name, f.Kind, meaning)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != table {
		t.Error("the table of fields is not current: go test ./internal/core/jobfilter -update")
	}
}
