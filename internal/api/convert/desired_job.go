package convert

import (
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// DesiredJobFromPB reads a desired job. Its Err has what cannot be read. defaults may be nil.
func DesiredJobFromPB(defaults *backoff.Defaults, namespace string, p *fermatav1.DesiredJob) job.DesiredJob {
	w := job.DesiredJob{Etag: p.GetEtag(), Delete: p.GetDelete()}
	key := job.Key{Namespace: namespace, ID: p.GetJobId()}
	if w.Delete {
		w.Definition.Key = key
		return w
	}
	r := Reader{Defaults: defaults}
	r.RefreshDefaults = p.GetRefreshDefaults()
	w.AsRead = p.GetJob().GetPayloadSealed() && !hasPayload(p.GetJob())
	if p.GetJob().GetPayloadSealed() && !w.AsRead {
		r.RejectSealed(p.GetJob())
	}
	w.Definition = r.Definition(key, p.GetJob())
	w.Err, w.Doubtful, w.Refresh = r.Err(), r.DoubtfulFields, r.RefreshDefaults
	if p.Paused != nil {
		w.Pause, w.Resume = *p.Paused, !*p.Paused
	}
	return w
}

var ApplyActions = Enum[fermatav1.JobChange_Action, job.ApplyAction]{
	{fermatav1.JobChange_ACTION_CREATE, job.ApplyCreate},
	{fermatav1.JobChange_ACTION_UPDATE, job.ApplyUpdate},
	{fermatav1.JobChange_ACTION_UNCHANGED, job.ApplyUnchanged},
	{fermatav1.JobChange_ACTION_DELETE, job.ApplyDelete},
	{fermatav1.JobChange_ACTION_EXPIRED, job.ApplyPassed},
}
