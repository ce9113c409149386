package client

import (
	"cmp"
	"context"
	"slices"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Targets returns the targets that jobs name, by namespace and target, of the client's namespace or of all that the
// caller may see. It reads all pages, and adds up the numbers of jobs.
func (c *Client) Targets(ctx context.Context, allNamespaces bool) ([]*Target, error) {
	type name struct{ parent, target string }
	found := map[name]*Target{}
	for token := ""; ; {
		r, err := callWithRetry(ctx, c, c.jobs.ListTargets, &fermatav1.ListTargetsRequest{
			Parent: c.spanningParent(allNamespaces), PageSize: 1000, PageToken: token,
		})
		if err != nil {
			return nil, err
		}
		for _, t := range r.GetTargets() {
			n := name{t.GetParent(), t.GetTarget()}
			if before := found[n]; before != nil {
				t.Jobs, t.HeldJobs = t.GetJobs()+before.GetJobs(), t.GetHeldJobs()+before.GetHeldJobs()
			}
			found[n] = t
		}
		token = r.GetNextPageToken()
		if token == "" {
			break
		}
	}
	targets := make([]*Target, 0, len(found))
	for _, t := range found {
		targets = append(targets, t)
	}
	slices.SortFunc(targets, func(a, b *Target) int {
		return cmp.Or(cmp.Compare(a.GetParent(), b.GetParent()), cmp.Compare(a.GetTarget(), b.GetTarget()))
	})
	return targets, nil
}

// ProbeTarget ends the wait of a target, and makes one of the runs due that it holds back. It returns the target, and
// the name of the job of that run; "" if there was none.
func (c *Client) ProbeTarget(ctx context.Context, target string) (*Target, string, error) {
	r, err := callWithRetry(ctx, c, c.jobs.ProbeTarget, &fermatav1.ProbeTargetRequest{
		Parent: c.namespaceName(), Target: target,
	})
	return r.GetTarget(), r.GetJob(), err
}

// ResetTarget closes the circuit of a target, and makes all runs due that it holds back. It returns the target, and
// the number of these runs, also with an error.
func (c *Client) ResetTarget(ctx context.Context, target string) (after *Target, released int, err error) {
	q := &fermatav1.ResetTargetRequest{Parent: c.namespaceName(), Target: target}
	for {
		r, err := callWithRetry(ctx, c, c.jobs.ResetTarget, q)
		released += int(r.GetReleased())
		q.PageToken = r.GetNextPageToken()
		if err != nil || q.PageToken == "" {
			return r.GetTarget(), released, err
		}
	}
}

// Locks returns the locks that jobs name, by namespace and key, with holders and waiters, of the client's namespace or
// of all that the caller may see. It reads all pages.
func (c *Client) Locks(ctx context.Context, allNamespaces bool) ([]*LockStatus, error) {
	type name struct{ parent, key string }
	found := map[name]*LockStatus{}
	for token := ""; ; {
		r, err := callWithRetry(ctx, c, c.jobs.ListLocks, &fermatav1.ListLocksRequest{
			Parent: c.spanningParent(allNamespaces), PageSize: 250, PageToken: token,
		})
		if err != nil {
			return nil, err
		}
		for _, l := range r.GetLocks() {
			n := name{l.GetParent(), l.GetKey()}
			if before := found[n]; before != nil {
				l.Jobs, l.Capacity = l.GetJobs()+before.GetJobs(), max(l.GetCapacity(), before.GetCapacity())
			}
			found[n] = l
		}
		token = r.GetNextPageToken()
		if token == "" {
			break
		}
	}
	locks := make([]*LockStatus, 0, len(found))
	for _, l := range found {
		locks = append(locks, l)
	}
	slices.SortFunc(locks, func(a, b *LockStatus) int {
		return cmp.Or(cmp.Compare(a.GetParent(), b.GetParent()), cmp.Compare(a.GetKey(), b.GetKey()))
	})
	return locks, nil
}
