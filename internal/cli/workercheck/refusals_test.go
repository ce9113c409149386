package workercheck_test

import (
	"os"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/cli/workercheck"
)

// TestFaultsNameTheirCause: what is reported names what the author of the worker has to change.
func TestFaultsNameTheirCause(t *testing.T) {
	withoutExec := optionsWithFault(noFault, "stop-idle")
	withoutExec.Command = []string{"/bin/sh", "-c", os.Args[0] + "; exit $?"}
	for _, c := range []struct {
		what    string
		options workercheck.Options
		text    string
	}{
		{"no client certificate", optionsWithFault("no-client-certificate", "client-certificate"), "FERMATA_TLS_CERT"},
		{"a shell without exec", withoutExec, "by exec"},
	} {
		o := c.options
		o.NeverRepeat = true
		r := run(t, o).Results[0]
		if r.Status != workercheck.Failed || !strings.Contains(r.Faults[0].Text, c.text) {
			t.Errorf("%s: %s %v, want a fault with %q", c.what, r.Status, r.Faults, c.text)
		}
	}
}
