package node

import (
	"context"
	"fmt"
	"sync"

	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/events"
	"github.com/fermata-io/fermata/internal/engine/webhook"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
)

// observers receive notices, one after the other.
type observers []interface{ Observe([]job.Notice) }

func (o observers) Observe(notices []job.Notice) {
	for _, each := range o {
		each.Observe(notices)
	}
}

// eventStore reads events with the clients' pool. Announcements arrive with the decisions of the engines.
type eventStore struct {
	*redisstore.Store
	engines *redisstore.Store
}

func (s eventStore) Announce(h ...job.Event)               { s.engines.Announce(h...) }
func (s eventStore) AnnouncedSignal() <-chan struct{}      { return s.engines.AnnouncedSignal() }
func (s eventStore) FlushEvents(ctx context.Context) error { return s.engines.FlushEvents(ctx) }

// buildEvents builds the event feed and the webhooks.
func (n *Node) buildEvents(context.Context) (err error) {
	c := n.cfg
	n.stopHooks = func() {}
	n.feed, err = events.New(events.Options{
		Store: eventStore{n.clientStore, n.store}, Logger: c.Logger, Registerer: c.Registerer,
	})
	if err != nil || c.WebhooksFile == "" {
		return err
	}
	n.hooks, err = webhook.New(webhook.Options{
		Store: n.clientStore, Feed: n.feed, Held: n.heldLocks, Path: c.WebhooksFile,
		Source:  "urn:fermata:" + c.Keyspace,
		Version: c.Version, Logger: c.Logger, Registerer: c.Registerer,
	})
	if err == nil {
		n.reportFile("webhooks", n.hooks.LoadError)
	}
	return err
}

// webhookService is nil if there are no webhooks.
func (n *Node) webhookService() rpc.Webhooks {
	if n.hooks == nil {
		return nil
	}
	return n.hooks
}

// runHooks delivers until the node drains.
func (n *Node) runHooks() {
	if n.hooks == nil {
		return
	}
	ctx, cancel := context.WithCancel(n.ctx)
	done := make(chan struct{})
	n.engines.Go(func() {
		defer close(done)
		_ = n.hooks.Run(ctx) // it returns only when its context ends
	})
	n.stopHooks = sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

// heldLocks are the shards that this node holds, with their lock values.
func (n *Node) heldLocks() map[int]string {
	held := map[int]string{}
	for _, shard := range n.allShards() {
		if lock, ok := n.locks.ValidLock(shard); ok {
			held[shard] = lock.Value
		}
	}
	return held
}

// compareEventsKeep logs nodes that are configured to keep another number of events, once for each change. It is
// not called concurrently.
func (n *Node) compareEventsKeep() {
	var others []string
	for _, m := range n.knownMembers() {
		if m.EventsKeep >= 0 && m.EventsKeep != n.cfg.EventsKeep {
			others = append(others, fmt.Sprintf("%s=%d", m.Name, m.EventsKeep))
		}
	}
	g := n.gauges
	g.eventsKeepMismatches.Set(float64(len(others)))
	text := listNodes(others)
	if text == g.loggedKeepers {
		return
	}
	g.loggedKeepers = text
	if text == "" {
		n.cfg.Logger.Info("all nodes have the same --events-keep", "events_keep", n.cfg.EventsKeep)
		return
	}
	n.cfg.Logger.Warn("nodes differ in --events-keep, nodes with 0 record no events, and the least of the others "+
		"applies",
		"events_keep", n.cfg.EventsKeep, "others", text)
}

// recordNodeEvent records an event about this node.
func (n *Node) recordNodeEvent(kind string) {
	n.store.Announce(job.Event{Kind: kind, Node: n.cfg.Name})
}

func (n *Node) shardTaken(shard int) {
	n.store.Announce(job.Event{Kind: job.KindShardTaken, Shard: shard, Node: n.cfg.Name})
}
