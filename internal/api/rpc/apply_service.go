package rpc

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (s *jobService) PlanJobs(ctx context.Context, q *fermatav1.PlanJobsRequest) (*fermatav1.PlanJobsResponse, error) {
	wishes, err := s.readWishes(q.GetParent(), q.GetWishes())
	if err != nil {
		return nil, err
	}
	answers := s.jobs.PlanWishes(ctx, wishes, q.GetForce())
	if err := whole(answers); err != nil {
		return nil, err
	}
	return &fermatav1.PlanJobsResponse{Changes: s.changes(answers, true)}, nil
}

func (s *jobService) ApplyJobs(ctx context.Context, q *fermatav1.ApplyJobsRequest) (*fermatav1.ApplyJobsResponse, error) {
	wishes, err := s.readWishes(q.GetParent(), q.GetWishes())
	if err != nil {
		return nil, err
	}
	answers := s.jobs.Apply(ctx, wishes, q.GetForce())
	if err := whole(answers); err != nil {
		return nil, err
	}
	return &fermatav1.ApplyJobsResponse{Changes: s.changes(answers, false)}, nil
}

// whole finds the error of a call that is too large, of which nothing was done.
func whole(answers []job.WishAnswer) error {
	for _, a := range answers {
		if errors.Is(a.Err, job.ErrTooLarge) {
			return a.Err
		}
	}
	return nil
}

func (s *jobService) readWishes(parent string, list []*fermatav1.JobWish) ([]job.Wish, error) {
	if n := len(list); n > maxBatch {
		return nil, job.Invalid("wishes", "has %d entries, at most %d are allowed", n, maxBatch)
	}
	namespace, err := parseNamespace("parent", parent)
	if err != nil {
		return nil, err
	}
	return each(list, func(p *fermatav1.JobWish) job.Wish { return s.readWish(namespace, p) }), nil
}

// readWish reads a wish; what is wrong with it is told with all that the model finds.
func (s *jobService) readWish(namespace string, p *fermatav1.JobWish) job.Wish {
	w := job.Wish{Etag: p.GetEtag(), Delete: p.GetDelete()}
	key := job.Key{Namespace: namespace, ID: p.GetJobId()}
	if w.Delete {
		w.Definition.Key = key
		return w
	}
	r := s.reader()
	r.refresh = p.GetRefreshDefaults()
	w.AsRead = p.GetJob().GetPayloadSealed() && len(p.GetJob().GetPayload()) == 0
	if p.GetJob().GetPayloadSealed() && !w.AsRead {
		r.refuseSealed(p.GetJob())
	}
	w.Definition = r.definition(key, p.GetJob())
	w.Err, w.Doubtful, w.Refresh = r.err(), r.doubtful, r.refresh
	if p.Paused != nil {
		w.Pause, w.Resume = *p.Paused, !*p.Paused
	}
	return w
}

func (s *jobService) changes(answers []job.WishAnswer, planned bool) []*fermatav1.JobChange {
	return each(answers, func(a job.WishAnswer) *fermatav1.JobChange { return s.change(a, planned) })
}

func (s *jobService) change(a job.WishAnswer, planned bool) *fermatav1.JobChange {
	p := &fermatav1.JobChange{}
	var before *fermatav1.Job
	if a.Before != nil {
		before = s.record(*a.Before)
	}
	if planned {
		p.Before = before
	}
	if a.Err != nil {
		st, _ := toStatus(a.Err)
		sp := st.Proto()
		p.Code, p.Message, p.Details = sp.GetCode(), sp.GetMessage(), sp.GetDetails()
		return p
	}
	p.Action = wishActions.pb(a.Action)
	if a.After != nil {
		if planned {
			p.After = definitionToPB(a.After.Definition)
			if p.After.PayloadSealed {
				p.After.Payload = nil
			}
		} else {
			p.After = s.record(*a.After)
		}
	}
	if a.Action == job.WishUpdate {
		p.Fields = differing(before, p.After)
		if a.PauseChanges {
			p.Fields = append(p.Fields, "paused")
		}
	}
	return p
}

// differing lists the settable fields in which two jobs differ.
func differing(a, b *fermatav1.Job) []string {
	var out []string
	x, y := a.ProtoReflect(), b.ProtoReflect()
	for _, name := range settable {
		field := x.Descriptor().Fields().ByName(protoreflect.Name(name))
		if !x.Get(field).Equal(y.Get(field)) {
			out = append(out, name)
		}
	}
	sealed := a.GetPayloadSealed() != b.GetPayloadSealed() || a.GetPayloadKeyId() != b.GetPayloadKeyId()
	if sealed && !slices.Contains(out, "payload") {
		out = append(out, "payload")
	}
	number := func(name string) protoreflect.FieldNumber {
		return x.Descriptor().Fields().ByName(protoreflect.Name(name)).Number()
	}
	slices.SortFunc(out, func(m, n string) int { return int(number(m) - number(n)) })
	return out
}

// applied completes the record of a call of ApplyJobs.
func applied(r *job.TrailRecord, q *fermatav1.ApplyJobsRequest, a *fermatav1.ApplyJobsResponse) {
	r.Resource = q.GetParent()
	for i, c := range a.GetChanges() {
		switch {
		case c.GetCode() != 0:
			r.Refused++
		case c.GetAction() != fermatav1.JobChange_ACTION_UNCHANGED:
			r.Changed++
			if len(r.Names) < job.MaxTrailNames {
				r.Names = append(r.Names, q.GetParent()+"/jobs/"+q.GetWishes()[i].GetJobId())
			}
		}
	}
	if q.GetForce() {
		r.Fields = []string{"force"}
	}
}

var wishActions = enum[fermatav1.JobChange_Action, job.WishAction]{
	{fermatav1.JobChange_ACTION_CREATE, job.WishCreate},
	{fermatav1.JobChange_ACTION_UPDATE, job.WishUpdate},
	{fermatav1.JobChange_ACTION_UNCHANGED, job.WishUnchanged},
	{fermatav1.JobChange_ACTION_DELETE, job.WishDelete},
	{fermatav1.JobChange_ACTION_PASSED, job.WishPassed},
}
