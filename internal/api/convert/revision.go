package convert

import (
	"math"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// RevisionName returns "namespaces/{n}/jobs/{j}/revisions/{r}".
func RevisionName(k job.Key, revision uint32) string {
	return JobName(k) + "/revisions/" + strconv.FormatUint(uint64(revision), 10)
}

// ParseRevisionName reads the name of a revision.
func ParseRevisionName(field, name string) (job.Key, uint32, error) {
	ids, err := parseName(field, name, "namespaces", "jobs", "revisions")
	if err != nil {
		return job.Key{}, 0, err
	}
	key := job.Key{Namespace: ids[0], ID: ids[1]}
	if err := ValidateKey(field, key); err != nil {
		return job.Key{}, 0, err
	}
	revision, err := strconv.ParseUint(ids[2], 10, 32)
	if err != nil || revision == 0 {
		return job.Key{}, 0, job.Invalid(field, "revision %q: must be a number, 1 or more", job.Clip(ids[2], 40))
	}
	return key, uint32(revision), nil
}

// ParseRevision reads the number of a revision; 0 is unset.
func ParseRevision(field string, n int64) (uint32, error) {
	if n < 0 || n > math.MaxUint32 {
		return 0, job.Invalid(field, "is %d, must be 1 or more", n)
	}
	return uint32(n), nil
}

// NameOfCurrentRevision returns the name of the revision that a job has, by its etag; "" if it has none.
func NameOfCurrentRevision(p *fermatav1.Job) string {
	_, revision, ok := strings.Cut(p.GetEtag(), "-")
	n, err := strconv.ParseUint(revision, 36, 32)
	if !ok || err != nil {
		return ""
	}
	return p.GetName() + "/revisions/" + strconv.FormatUint(n, 10)
}

// RevisionToPB returns a revision without its definition.
func RevisionToPB(r job.JobRevision, current bool) *fermatav1.JobRevision {
	p := &fermatav1.JobRevision{
		Name: RevisionName(r.Key, r.Revision), Revision: int64(r.Revision), Current: current,
		CreateTime: MillisToPB(r.StoredAt()), Identity: r.LastEdit.Identity, Method: r.LastEdit.Method,
	}
	if r.Before != nil {
		p.Fields = ChangedFields(DefinitionToPB(r.Before), DefinitionToPB(r.Definition))
	}
	return p
}

// RevisedJobToPB returns the definition of a revision, without a sealed payload.
func RevisedJobToPB(d *job.Definition) *fermatav1.Job {
	p := DefinitionToPB(d)
	if p.PayloadSealed {
		p.Payload = nil
	}
	return p
}

// RevisionDiffToPB compares two revisions.
func RevisionDiffToPB(d job.RevisionDiff) *fermatav1.DiffJobRevisionsResponse {
	out := &fermatav1.DiffJobRevisionsResponse{
		From:   RevisionToPB(job.JobRevision{Definition: d.From}, false),
		To:     RevisionToPB(job.JobRevision{Definition: d.To}, d.ToIsCurrent),
		Fields: ChangedFields(DefinitionToPB(d.From), DefinitionToPB(d.To)),
	}
	out.From.Current = d.ToIsCurrent && d.From.Revision == d.To.Revision
	out.From.Job, out.To.Job = RevisedJobToPB(d.From), RevisedJobToPB(d.To)
	return out
}

// exportedRevisions returns the revisions of a backup: the current one without its definition, then earlier ones.
func exportedRevisions(b *job.Backup) []*fermatav1.JobRevision {
	list := []*fermatav1.JobRevision{RevisionToPB(job.JobRevision{Definition: &b.Definition}, true)}
	for _, d := range b.Revisions {
		p := RevisionToPB(job.JobRevision{Definition: d}, false)
		p.Job = DefinitionToPB(d)
		list = append(list, p)
	}
	return list
}

// readRevisions reads the revisions of a backup.
func (r *Reader) readRevisions(b *job.Backup, list []*fermatav1.JobRevision) {
	if len(list) > job.MaxRevisions+1 {
		r.Reject("revisions", "has more than "+strconv.Itoa(job.MaxRevisions+1)+" entries")
		return
	}
	for i, p := range list {
		field := "revisions[" + strconv.Itoa(i) + "]"
		edit := job.Edit{Identity: r.displayedName(field+".identity", p.GetIdentity()),
			Method: r.displayedName(field+".method", p.GetMethod())}
		if p.GetJob() == nil {
			if b.Checkpoint != nil && p.GetRevision() == int64(b.Checkpoint.Revision) {
				b.Checkpoint.LastEdit = edit
			}
			continue
		}
		d := r.Definition(b.Definition.Key, p.GetJob())
		d.PayloadKey = p.GetJob().GetPayloadKeyId()
		d.Revision, d.LastEdit = r.uint32Counter(field+".revision", p.GetRevision()), edit
		d.UpdatedMS = unixtime.Milli(r.Millis(field+".create_time", p.GetCreateTime()))
		b.Revisions = append(b.Revisions, &d)
	}
}

// displayedName reads a name that people read as it is stored.
func (r *Reader) displayedName(field, name string) string {
	err := authz.CheckName(name)
	if err != nil {
		r.Reject(field, err.Error())
	}
	return job.Clip(name, job.MaxTrailText)
}
