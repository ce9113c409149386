package codec

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/client"
)

// TestRequestIDsArePacked: whatever the text, it is read as it was written, and those
// that the client makes up take 16 bytes.
func TestRequestIDsArePacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.OneOf(
			rapid.StringMatching("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
			rapid.StringMatching("[0-9a-fA-F-]{36}"), rapid.StringN(0, 40, -1),
		).Draw(t, "id")
		rest, packed := packUUID(id)
		if got := rest + formatUUID(packed); got != id {
			t.Fatalf("%q became %q", id, got)
		}
	})
	id := client.NewRequestID()
	if rest, packed := packUUID(id); rest != "" || len(packed) != 16 {
		t.Errorf("%s is packed as %q and %d bytes", id, rest, len(packed))
	}
	if rest, packed := packUUID(strings.ToUpper(id)); rest == "" || packed != nil {
		t.Error("upper case is packed, and would be read as lower case")
	}
}
