package webhook

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/filewatch"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

const (
	// DefaultReload is how often the file is looked at.
	DefaultReload = 2 * time.Second

	// passInterval is the longest pause between two passes.
	passInterval = 500 * time.Millisecond
	// stateRetention is how long the state of a webhook is kept that the file no longer has.
	stateRetention = 30 * 24 * time.Hour
)

// Store is the storage of the courier.
type Store interface {
	Now(ctx context.Context, shard int) (unixtime.Milli, error)
	// WebhookProgress answers with an error those shards that could be read.
	WebhookProgress(ctx context.Context, shards []int) (map[int]map[string]job.WebhookProgress, error)
	SaveWebhookProgress(ctx context.Context, shard int, lockValue, hook string, state job.WebhookProgress,
		letter *job.UndeliveredEvent) (evicted int, err error)
	DeleteWebhooks(ctx context.Context, shard int, hooks []string) error
	UndeliveredEvents(ctx context.Context, q job.UndeliveredQuery) ([]job.UndeliveredEvent, error)
	CountUndeliveredEvents(ctx context.Context, hooks []string) (map[string]int, error)
	DeferUndeliveredEvent(ctx context.Context, l job.UndeliveredEvent, atMS unixtime.Milli) error
	DeleteUndeliveredEvent(ctx context.Context, l job.UndeliveredEvent) error
	LastEvents(ctx context.Context) ([]job.Place, error)
	Events(ctx context.Context, asks []job.EventsRequest) ([]job.EventsPage, error)
}

// Feed is the source of events.
type Feed interface {
	Acquire() (release func())
	LastPlaces() (last []job.Place, changed <-chan struct{})
	Read(ctx context.Context, asks []job.EventsRequest) ([]job.EventsPage, error)
}

// Options configure a Deliverer; all but the last three are required.
type Options struct {
	Store Store
	Feed  Feed
	// Held lists the shards that this node holds, with the values of their locks.
	Held func() map[int]string
	// Path is that of the webhooks file, which is read again when it changes.
	Path string
	// Source is the source of the CloudEvents. Version is sent in the User-Agent.
	Source, Version string
	// Reload is how often the file is looked at. Default 2 s.
	Reload time.Duration
	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Deliverer delivers events.
type Deliverer struct {
	options Options
	metrics *webhookMetrics
	wake    chan struct{}
	wg      sync.WaitGroup
	// fileStatus is whether the file is valid.
	fileStatus filewatch.Status

	mu               sync.Mutex
	senders          map[string]*sender
	deliveriesByHook map[string]int // deliveries of a webhook under way
	shards           map[int]*heldShard
	turnCount        uint64 // that were begun
}

// heldShard is a shard that this node holds, under one value of its lock.
type heldShard struct {
	lock  string
	lanes map[string]*hookLane
}

// hookLane is a webhook's way through a shard. While it is busy its state belongs to the
// delivery.
type hookLane struct {
	hook, lock   string
	shard        int
	busy         bool
	lastTurn     uint64 // when it last had one, by the courier's count
	state        job.WebhookProgress
	unsaved      bool      // state is ahead of what is stored
	waitingSince time.Time // time of the event that it is to deliver next; zero: unknown, or none
	notBefore    time.Time // not before
	ctx          context.Context
	cancel       context.CancelFunc
}

// New reads the file.
func New(o Options) (*Deliverer, error) {
	if o.Store == nil || o.Feed == nil || o.Held == nil || o.Path == "" {
		return nil, errors.New("webhook: Store, Feed, Held and Path are required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Reload = cmp.Or(o.Reload, DefaultReload)
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	c := &Deliverer{options: o, metrics: m, wake: make(chan struct{}, 1), senders: map[string]*sender{},
		deliveriesByHook: map[string]int{}, shards: map[int]*heldShard{}}
	hooks, err := loadFile(o.Path)
	if err != nil {
		return nil, err
	}
	c.installHooks(hooks)
	return c, nil
}

// Run delivers until ctx ends, and then stores how far it is.
func (c *Deliverer) Run(ctx context.Context) error {
	defer c.drainDeliveries()
	reload, pass := time.NewTicker(c.options.Reload), time.NewTicker(passInterval)
	defer reload.Stop()
	defer pass.Stop()
	var release func()
	for {
		if wanted := c.hasWork(); wanted && release == nil {
			release = c.options.Feed.Acquire()
		} else if !wanted && release != nil {
			release()
			release = nil
		}
		last, changed := c.options.Feed.LastPlaces()
		if release != nil && last != nil {
			c.runPass(ctx, last)
		}
		select {
		case <-ctx.Done():
			if release != nil {
				release()
			}
			return nil
		case <-reload.C:
			c.reloadFile()
		case <-pass.C:
		case <-c.wake:
		case <-changed:
		}
	}
}

// drainDeliveries waits for deliveries in progress, and stores unsaved states.
func (c *Deliverer) drainDeliveries() {
	c.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	for _, s := range c.shards {
		for _, l := range s.lanes {
			if l.unsaved {
				(&delivery{c: c, l: l, s: c.senders[l.hook]}).saveState(ctx, nil)
			}
		}
	}
}

func (c *Deliverer) hasWork() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.senders) > 0
}

// reloadFile applies a changed file. An invalid file leaves the previous one in force.
func (c *Deliverer) reloadFile() {
	hooks, err := loadFile(c.options.Path)
	c.fileStatus.Update(err, c.options.Logger, "webhooks file", c.options.Path)
	if err == nil && c.installHooks(hooks) {
		c.options.Logger.Info("webhooks file reloaded", "path", c.options.Path, "webhooks", len(hooks))
	}
}

// LoadError is the error of the file while it is invalid and the one read before is in force; nil while it is valid.
func (c *Deliverer) LoadError() error { return c.fileStatus.Fault() }

// installHooks puts webhooks in force; those that have not changed go on.
func (c *Deliverer) installHooks(hooks []*hookConfig) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[string]*sender{}
	for _, h := range hooks {
		before := c.senders[h.name]
		if before != nil && before.hook.digest == h.digest {
			next[h.name] = before
			continue
		}
		changed = true
		secretfile.WarnIfExposed(c.options.Logger, h.keyFile)
		next[h.name] = newSender(h, c.options.Source, c.options.Version, c.options.Logger)
		c.metrics.createSeries(h.name)
		for _, s := range c.shards {
			if l := s.lanes[h.name]; l != nil {
				l.notBefore = time.Time{} // what is new may be the cure
			}
		}
	}
	for name, s := range c.senders {
		if next[name] != s {
			s.close()
		}
		if next[name] == nil {
			changed = true
			c.metrics.deleteSeries(name)
			for _, s := range c.shards {
				if l := s.lanes[name]; l != nil {
					l.cancel()
					delete(s.lanes, name)
				}
			}
		}
	}
	c.senders = next
	return changed
}
