package main

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/manifest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestOutputCannotControlATerminal: what others wrote turns no text around and hides none, in any form
// of output, and reads back as it was.
func TestOutputCannotControlATerminal(t *testing.T) {
	const hostile = "a\u202eb\u200bc\u009bd\u2066e\u2028f\U000e0041g\ufe0fh\u3164i\x7fj"
	j := &client.Job{
		Name: "namespaces/default/jobs/a", Handler: "h", Payload: []byte("one\ntwo\u202e\n"), Labels: map[string]string{hostile: "x", "y": hostile},
		Status: &fermatav1.JobStatus{PauseNote: hostile, LastError: "line\n" + hostile},
	}
	steers := func(r rune) bool {
		return r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Variation_Selector) || r == '\u3164')
	}
	for _, form := range []string{"table", "json", "yaml", "export", "list of yaml"} {
		var out bytes.Buffer
		a := &app{standardStreams: standardStreams{out: &out}, output: form}
		var err error
		switch form {
		case "table":
			var rows outputTable
			rows.addRow(printableText(hostile), clipText(hostile, 100))
			err = a.printTable(rows)
		case "export":
			w := bufio.NewWriter(&out)
			err = writeLine(w, j)
			if err == nil {
				err = w.Flush()
			}
		case "list of yaml":
			a.output = "yaml"
			err = printMessages(a, []*client.Job{j, j}, nil)
		default:
			err = printMessage(a, j, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if strings.ContainsFunc(text, steers) {
			t.Errorf("%s: %q", form, text)
		}
		switch form {
		case "json", "export":
			back := &client.Job{}
			if err := protojson.Unmarshal(out.Bytes(), back); err != nil || back.GetLabels()["y"] != hostile || back.GetLabels()[hostile] != "x" {
				t.Errorf("%s reads back as %v: %v", form, back, err)
			}
		case "yaml":
			var back map[string]any
			if err := yaml.Unmarshal(out.Bytes(), &back); err != nil || back["labels"].(map[string]any)["y"] != hostile {
				t.Errorf("%s reads back as %v: %v", form, back, err)
			}
		}
	}
	_, faults := manifest.Read("f", []byte("id: a\n\"sp"+`\u202e\u3164\U000e0041`+"eed\": 3\n"), "default")
	if len(faults) != 1 || strings.ContainsFunc(faults.Error(), steers) {
		t.Errorf("a fault: %q", faults)
	}
}
