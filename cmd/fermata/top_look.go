package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// clusterSnapshot is the state of the cluster at one time.
type clusterSnapshot struct {
	at      time.Time
	queues  []*fermatav1.Queue
	failing []*fermatav1.TopJob
	late    []*fermatav1.TopJob
	nodes   []*fermatav1.Node
	lost    []*fermatav1.LostNode
	workers []*fermatav1.Worker
	shards  []*fermatav1.Shard
	// denied has the parts that the caller may not see.
	denied []string
	// namespaces are the shown namespaces; nil: all.
	namespaces []string
	err        error
}

// maxJobsShown is how many of the worst jobs are asked for.
const maxJobsShown = 20

// takeSnapshot asks for everything at once, within --request-timeout. With all it is of all namespaces, or of
// those that the roles of the caller name.
func (a *app) takeSnapshot(ctx context.Context, c *client.Client, all bool) clusterSnapshot {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	p := a.snapshotOf(ctx, c, all)
	switch {
	case !all:
		p.namespaces = []string{c.Namespace()}
	case p.err == nil && p.isDenied("queues"):
		quiet := *a // the view shows the warnings
		quiet.err = nil
		if names := quiet.namespacesOfRoles(ctx, c); len(names) > 0 {
			p = a.snapshotOfEach(ctx, c, names)
		}
	}
	return p
}

// snapshotOfEach is a picture of some namespaces together.
func (a *app) snapshotOfEach(ctx context.Context, c *client.Client, names []string) clusterSnapshot {
	var sum clusterSnapshot
	denied := map[string]int{}
	for i, name := range names {
		p := a.snapshotOf(ctx, c.InNamespace(name), false)
		if i == 0 {
			sum.nodes, sum.lost, sum.workers, sum.shards = p.nodes, p.lost, p.workers, p.shards
		}
		if !p.isDenied("queues") {
			sum.namespaces = append(sum.namespaces, name)
		}
		for _, what := range p.denied {
			denied[what]++
		}
		sum.at, sum.err = p.at, cmp.Or(sum.err, p.err)
		sum.queues = append(sum.queues, p.queues...)
		sum.failing = append(sum.failing, p.failing...)
		sum.late = append(sum.late, p.late...)
	}
	for what, n := range denied {
		if n == len(names) {
			sum.denied = append(sum.denied, what)
		}
	}
	slices.Sort(sum.denied)
	sum.failing = sortTopJobs(fermatav1.TopJobsRequest_KIND_FAILING, sum.failing, maxJobsShown)
	sum.late = sortTopJobs(fermatav1.TopJobsRequest_KIND_LATE, sum.late, maxJobsShown)
	return sum
}

// snapshotOf asks for everything of all namespaces, or of that of the client.
func (a *app) snapshotOf(ctx context.Context, c *client.Client, all bool) clusterSnapshot {
	var p clusterSnapshot
	var mu sync.Mutex
	var group sync.WaitGroup
	part := func(name string, ask func() error) {
		group.Go(func() {
			err := ask()
			mu.Lock()
			defer mu.Unlock()
			if status.Code(err) == codes.PermissionDenied {
				p.denied = append(p.denied, name)
			} else {
				p.err = cmp.Or(p.err, err)
			}
		})
	}
	part("queues", func() (err error) {
		p.queues, err = c.Admin().Queues(ctx, client.QueuesOptions{AllNamespaces: all})
		return err
	})
	worst := client.TopOptions{AllNamespaces: all, Limit: maxJobsShown}
	part("failing jobs", func() error {
		list, err := c.TopJobs(ctx, client.TopFailing, worst)
		p.failing = list.GetJobs()
		return err
	})
	part("late jobs", func() error {
		list, err := c.TopJobs(ctx, client.TopLate, worst)
		p.late = list.GetJobs()
		return err
	})
	part("nodes", func() (err error) { p.nodes, p.lost, err = c.Admin().NodesWithLost(ctx); return err })
	part("workers", func() (err error) { p.workers, err = c.Admin().Workers(ctx); return err })
	part("shards", func() (err error) { p.shards, err = c.Admin().Shards(ctx); return err })
	group.Wait()
	slices.Sort(p.denied)
	p.at = a.now()
	return p
}

// queueOrder is one of the orders of the queues.
type queueOrder struct {
	name string
	key  rune
	// more is greater for queues that come first.
	more func(q *fermatav1.Queue) float64
}

var queueOrders = map[string]queueOrder{
	"backlog":  {"backlog", 'b', func(q *fermatav1.Queue) float64 { return float64(q.GetBacklog()) }},
	"oldest":   {"oldest", 'o', func(q *fermatav1.Queue) float64 { return q.GetOldestOverdue().AsDuration().Seconds() }},
	"lag":      {"lag", 'l', func(q *fermatav1.Queue) float64 { return q.GetRecentRuns().GetMaxLag().AsDuration().Seconds() }},
	"starts":   {"starts", 's', func(q *fermatav1.Queue) float64 { return float64(q.GetRecentRuns().GetStarted()) }},
	"failures": {"failures", 'f', func(q *fermatav1.Queue) float64 { return float64(q.GetRecentRuns().GetFailed()) }},
	"name":     {"name", 'n', func(*fermatav1.Queue) float64 { return 0 }},
}

// sortQueues are the queues in this order, equals by name.
func (o queueOrder) sortQueues(queues []*fermatav1.Queue) []*fermatav1.Queue {
	out := slices.Clone(queues)
	slices.SortFunc(out, func(a, b *fermatav1.Queue) int {
		return cmp.Or(cmp.Compare(o.more(b), o.more(a)), cmp.Compare(a.GetNamespace(), b.GetNamespace()),
			cmp.Compare(a.GetQueue(), b.GetQueue()))
	})
	return out
}
