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
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

const (
	// DefaultReload is how often the file is looked at.
	DefaultReload = 2 * time.Second

	// passEvery is the longest pause between two looks at what there is to do.
	passEvery = 500 * time.Millisecond
	// keepStates is how long the state of a webhook is kept that the file no longer has.
	keepStates = 30 * 24 * time.Hour
)

// Store is what the courier needs of the store.
type Store interface {
	Now(ctx context.Context, shard int) (int64, error)
	// HookStates answers with an error those shards that could be read.
	HookStates(ctx context.Context, shards []int) (map[int]map[string]job.HookState, error)
	SaveHook(ctx context.Context, shard int, lockValue, hook string, state job.HookState, letter *job.HookLetter) (evicted int, err error)
	ForgetHooks(ctx context.Context, shard int, hooks []string) error
	HookLetters(ctx context.Context, q job.HookLettersQuery) ([]job.HookLetter, error)
	CountHookLetters(ctx context.Context, hooks []string) (map[string]int, error)
	DeferHookLetter(ctx context.Context, l job.HookLetter, atMS int64) error
	DropHookLetter(ctx context.Context, l job.HookLetter) error
	LastEvents(ctx context.Context) ([]job.Place, error)
	Events(ctx context.Context, asks []job.EventsAsk) ([]job.EventsPage, error)
}

// Feed is where the courier hears of events.
type Feed interface {
	Use() (release func())
	News() (last []job.Place, changed <-chan struct{})
	Read(ctx context.Context, asks []job.EventsAsk) ([]job.EventsPage, error)
}

// Options configure a Courier; all but the last three are required.
type Options struct {
	Store Store
	Feed  Feed
	// Held lists the shards that this node holds, with the values of their locks.
	Held func() map[int]string
	// Path is that of the webhooks file, which is read again when it changes.
	Path string
	// Source is that of the CloudEvents, Version is told in the User-Agent.
	Source, Version string
	// Reload is how often the file is looked at. Default 2 s.
	Reload time.Duration
	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Courier delivers events.
type Courier struct {
	o       Options
	metrics *metrics
	wake    chan struct{}
	wg      sync.WaitGroup

	mu      sync.Mutex
	senders map[string]*sender
	busy    map[string]int // deliveries of a webhook under way
	lanes   map[int]*shard
	turns   uint64 // that were begun
	fault   error  // of the file, as it was last logged
}

// shard is a shard that this node holds, under one value of its lock.
type shard struct {
	lock  string
	lanes map[string]*lane
}

// lane is a webhook's way through a shard. While it is busy its state belongs to the
// delivery.
type lane struct {
	hook, lock string
	shard      int
	busy       bool
	turn       uint64 // when it last had one, by the courier's count
	state      job.HookState
	unsaved    bool      // state is ahead of what is stored
	since      time.Time // of the event that it stands before; zero: unknown, or none
	due        time.Time // not before
	ctx        context.Context
	cancel     context.CancelFunc
}

// New reads the file.
func New(o Options) (*Courier, error) {
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
	c := &Courier{o: o, metrics: m, wake: make(chan struct{}, 1), senders: map[string]*sender{}, busy: map[string]int{}, lanes: map[int]*shard{}}
	hooks, err := load(o.Path)
	if err != nil {
		return nil, err
	}
	c.install(hooks)
	return c, nil
}

// Run delivers until ctx ends, and then stores how far it is.
func (c *Courier) Run(ctx context.Context) error {
	defer c.leave()
	reload, pass := time.NewTicker(c.o.Reload), time.NewTicker(passEvery)
	defer reload.Stop()
	defer pass.Stop()
	var release func()
	for {
		if wanted := c.wanted(); wanted && release == nil {
			release = c.o.Feed.Use()
		} else if !wanted && release != nil {
			release()
			release = nil
		}
		last, changed := c.o.Feed.News()
		if release != nil && last != nil {
			c.pass(ctx, last)
		}
		select {
		case <-ctx.Done():
			if release != nil {
				release()
			}
			return nil
		case <-reload.C:
			c.reload()
		case <-pass.C:
		case <-c.wake:
		case <-changed:
		}
	}
}

// leave waits for what is under way, and stores what could not be stored before.
func (c *Courier) leave() {
	c.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	for _, s := range c.lanes {
		for _, l := range s.lanes {
			if l.unsaved {
				(&delivery{c: c, l: l, s: c.senders[l.hook]}).save(ctx, nil)
			}
		}
	}
}

func (c *Courier) wanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.senders) > 0
}

// reload takes over a file that has changed. One at fault leaves what there is.
func (c *Courier) reload() {
	hooks, err := load(c.o.Path)
	switch before := c.swapFault(err); {
	case err != nil && (before == nil || before.Error() != err.Error()):
		c.o.Logger.Error("webhooks file is invalid, the one before stays in force", "error", err)
	case err == nil && before != nil:
		c.o.Logger.Info("webhooks file is valid again", "path", c.o.Path)
	}
	if err == nil && c.install(hooks) {
		c.o.Logger.Info("webhooks file taken over", "path", c.o.Path, "webhooks", len(hooks))
	}
}

// swapFault stores what is wrong with the file, and returns what was before.
func (c *Courier) swapFault(err error) (before error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.fault = c.fault, err
	return before
}

// FileFault is why the file cannot be used, so that the one read before is in force; nil
// while it can.
func (c *Courier) FileFault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

// install puts webhooks in force; those that have not changed go on.
func (c *Courier) install(hooks []*hook) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[string]*sender{}
	for _, h := range hooks {
		before := c.senders[h.name]
		if before != nil && before.hook.print == h.print {
			next[h.name] = before
			continue
		}
		changed = true
		secretfile.WarnIfExposed(c.o.Logger, h.keyFile)
		next[h.name] = newSender(h, c.o.Source, c.o.Version, c.o.Logger)
		c.metrics.begin(h.name)
		for _, s := range c.lanes {
			if l := s.lanes[h.name]; l != nil {
				l.due = time.Time{} // what is new may be the cure
			}
		}
	}
	for name, s := range c.senders {
		if next[name] != s {
			s.close()
		}
		if next[name] == nil {
			changed = true
			c.metrics.forget(name)
			for _, s := range c.lanes {
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
