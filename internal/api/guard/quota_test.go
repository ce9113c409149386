package guard

import (
	"testing"

	"github.com/fermata-io/fermata/internal/core/authz"
)

func TestQuotasAreForgotten(t *testing.T) {
	q := quotaTable{bySubject: map[string]*quota{}}
	kept := q.quotaFor("kept", authz.Limits{Connections: 5})
	kept.addConnection()
	for i := range 3 * maxQuotas {
		q.quotaFor(string(rune(i)), authz.Limits{})
	}
	if n := len(q.bySubject); n > maxQuotas+1 || q.bySubject["kept"] != kept {
		t.Errorf("%d quotas are kept", n)
	}
}
