package workerstream

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
)

func TestSignaturesFitOneWorkerOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringMatching(`[ab/.]{0,4}`)
		type who struct{ key, subject, namespace, worker string }
		draw := func(label string) who {
			return who{part.Draw(t, label+"k") + strings.Repeat("k", MinKeyBytes), part.Draw(t, label+"s"), part.Draw(t, label+"n"), part.Draw(t, label+"w")}
		}
		make := func(w who) *leaseSigner {
			return newLeaseSigner([]byte(w.key), w.subject, job.Hello{Namespace: w.namespace, WorkerID: w.worker})
		}
		a, b, id := draw("a"), draw("b"), part.Draw(t, "id")+"x"
		opened, ok := make(b).Verify(make(a).Sign(id))
		if ok != (a == b) || ok && opened != id {
			t.Fatalf("%+v %+v: %q %v", a, b, opened, ok)
		}
	})
}
