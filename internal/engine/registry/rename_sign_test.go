package registry

import (
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

// textSigner signs a text by itself, so that a test sees what a signature covers.
type textSigner struct{ Sealer }

func (textSigner) Sign(text string) string            { return text }
func (textSigner) Verify(text, signature string) bool { return text == signature }

// TestSignatureCoversWhatIsRenamed: the signature of a rename is not that of another rename, of another job, or of the
// same job with another payload.
func TestSignatureCoversWhatIsRenamed(t *testing.T) {
	r := &Registry{o: Options{Sealer: textSigner{}}}
	taken := func() *job.KeptJob {
		return &job.KeptJob{
			Rename: job.Rename{ID: "ID", From: job.Key{Namespace: "n", ID: "from"}, To: job.Key{Namespace: "n", ID: "to"}},
			AtMS:   1_800_000_000_000,
			Job: job.StoredJob{RevisionsText: "revisions", Records: []job.StoredRecord{
				{ID: "n/from", DefinitionText: "job"}, {ID: "n/from#0", DefinitionText: "letter"},
			}},
		}
	}
	signed := taken()
	r.signRename(signed)
	if !r.isSignedRename(signed) {
		t.Fatal("a job is refused as it was taken")
	}
	for name, change := range map[string]func(*job.KeptJob){
		"no signature":         func(k *job.KeptJob) { k.Signature = "" },
		"another time":         func(k *job.KeptJob) { k.AtMS++ },
		"another rename":       func(k *job.KeptJob) { k.ID = "OTHER" },
		"another old name":     func(k *job.KeptJob) { k.From.ID = "other" },
		"another new name":     func(k *job.KeptJob) { k.To.ID = "other" },
		"another namespace":    func(k *job.KeptJob) { k.To.Namespace = "other" },
		"a later definition":   func(k *job.KeptJob) { k.Job.Records[0].DefinitionText = "later" },
		"the record of a job":  func(k *job.KeptJob) { k.Job.Records[0].ID = "victim/x" },
		"a letter of a job":    func(k *job.KeptJob) { k.Job.Records[1].ID = "victim/x#0" },
		"one record more":      func(k *job.KeptJob) { k.Job.Records = append(k.Job.Records, k.Job.Records[1]) },
		"one record less":      func(k *job.KeptJob) { k.Job.Records = k.Job.Records[:1] },
		"a revision of a job":  func(k *job.KeptJob) { k.Job.RevisionsText = "other" },
		"a text that moves on": func(k *job.KeptJob) { k.From.ID, k.To.Namespace = "fromn", "" },
	} {
		k := taken()
		k.Signature = signed.Signature
		change(k)
		if r.isSignedRename(k) {
			t.Errorf("%s is accepted", name)
		}
	}
	if (&Registry{}).isSignedRename(signed) {
		t.Error("a node without payload keys accepts a signature")
	}
}
