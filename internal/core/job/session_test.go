package job

import (
	"testing"

	"pgregory.net/rapid"
)

func TestLeaseIDRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		record := rapid.StringMatching(`[a-z]{1,5}/[A-Za-z0-9._:~-]{1,9}(#d[0-2])?`).Draw(t, "record")
		token := rapid.Uint64Min(1).Draw(t, "token")
		gotRecord, gotToken, ok := ParseLeaseID(LeaseID(RecordID(record), token))
		if !ok || gotRecord != RecordID(record) || gotToken != token {
			t.Fatalf("read back %q %d %v", gotRecord, gotToken, ok)
		}
	})
}

func TestParseLeaseIDRefusesOthers(t *testing.T) {
	for _, id := range []string{"", "@", "1", "1@", "1@job", "@ns/job", "0@ns/job", "-1@ns/job", "x@ns/job", "1@/job", "1@ns/", "18446744073709551616@ns/job"} {
		if record, token, ok := ParseLeaseID(id); ok {
			t.Errorf("%q was read as %q %d", id, record, token)
		}
	}
}
