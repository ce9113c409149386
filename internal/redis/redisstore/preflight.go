package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Severity says what a finding means for the data.
type Severity uint8

// Severities.
const (
	Info    Severity = iota // worth knowing
	Warning                 // data may be lost in some failure
	Fatal                   // data will be lost, or nothing works
)

func (s Severity) String() string { return [...]string{"info", "warning", "fatal"}[min(s, Fatal)] }

// Finding is one thing about a server that somebody should know.
type Finding struct {
	Severity Severity
	Code     string // stable, for alerts: "eviction", "no_persistence" ...
	Server   string // address, empty for one that stands alone
	Text     string // what, and what to do about it
}

// Report is what a look at the servers has found.
type Report struct {
	Version  string
	Embedded bool // an imitation of Redis, not a server
	Cluster  bool
	Servers  int // primaries that were asked
	// Class is the durability that the servers can give now, the weakest of
	// them; in class replica only together with confirmed writes.
	Class    Durability
	Findings []Finding
}

// Worst is the greatest severity among the findings.
func (r Report) Worst() Severity {
	worst := Info
	for _, f := range r.Findings {
		worst = max(worst, f.Severity)
	}
	return worst
}

// Finds reports whether a finding of this code is in the report.
func (r Report) Finds(code string) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == code })
}

// Preflight looks at the servers and says plainly what is unsafe about them. It
// asks by INFO, and by ACL DRYRUN where that is allowed: managed servers refuse CONFIG. Only
// Client, Prefix, Embedded, Durability and Replicas of the options are used.
func Preflight(ctx context.Context, o Options) (Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Report{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.OpTimeout)
	defer cancel()
	servers, err := askAll(ctx, o.Client, o.Prefix)
	if err != nil {
		return Report{}, wrap("asking the servers", err)
	}
	r := Report{Class: DurabilityReplica, Servers: len(servers)}
	_, r.Cluster = o.Client.(*redis.ClusterClient)
	for _, i := range servers {
		r.judge(i, o)
	}
	r.conclude(o)
	return r, nil
}

// conclude compares what the servers give with what is demanded.
func (r *Report) conclude(o Options) {
	// Which refuses the server already, and tells why and what to do.
	unusable := func(f Finding) bool { return f.Code == codeReplay && f.Severity == Fatal }
	if r.Class < o.Durability && !slices.ContainsFunc(r.Findings, unusable) {
		r.find(Finding{Fatal, "durability", "", fmt.Sprintf(
			"durability class %s is demanded, but the server gives %s: %s", o.Durability, r.Class, remedy(o))})
	}
}

func remedy(o Options) string {
	if o.Durability == DurabilityLocal {
		return "turn on appendonly"
	}
	return fmt.Sprintf("turn on appendonly, attach at least %d replicas, and set min-replicas-to-write 1 with min-replicas-max-lag 2 on every server", o.Replicas)
}

// verdict refuses what must not be opened.
func (r Report) verdict(o Options) error {
	var all []error
	for _, f := range r.Findings {
		if f.Severity == Fatal && !(o.AllowUnsafe && f.Forgivable()) {
			all = append(all, errors.New(strings.TrimPrefix(f.Server+": "+f.Text, ": ")))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnsafe, errors.Join(all...))
}

// Forgivable tells whether AllowUnsafe accepts a fatal finding: it may cost data, and
// everything works until it does.
func (f Finding) Forgivable() bool {
	return slices.Contains([]string{"eviction", "durability", codeReplay}, f.Code)
}

func (r *Report) find(f Finding) { r.Findings = append(r.Findings, f) }

// judge adds one server to the report.
func (r *Report) judge(i info, o Options) {
	if !i.has("redis_version") || o.Embedded {
		r.Embedded, r.Class, r.Version = true, DurabilityMemory, "embedded"
		r.find(Finding{Warning, "embedded", i.addr, "an embedded imitation of Redis keeps nothing over a restart; use it for trials only"})
		return
	}
	r.Version = i.text("redis_version")
	if !i.atLeast(7, 0) {
		r.find(Finding{Fatal, "version", i.addr, "Redis " + r.Version + " is too old: 7.0 or later is needed"})
	} else if vulnerable(i) {
		r.find(lua(i))
	}
	if i.text("role") != "master" {
		r.find(Finding{Fatal, "role", i.addr, "this server is a replica: give the address of the primary, or use redis+sentinel://"})
	}
	if policy := i.text("maxmemory_policy"); policy != "noeviction" {
		r.find(Finding{Fatal, "eviction", i.addr, "maxmemory-policy " + policy + " deletes jobs or locks when memory is full: set it to noeviction"})
	}
	if i.number("maxmemory") == 0 {
		r.find(Finding{Info, "maxmemory", i.addr, "maxmemory is not set: a full host will kill Redis rather than refuse new jobs"})
	}
	r.Class = min(r.Class, r.judgeDurability(i, o))
}

func (r *Report) judgeDurability(i info, o Options) Durability {
	if i.text("aof_enabled") != "1" {
		r.find(Finding{Warning, "no_persistence", i.addr, "appendonly is off: a restart of Redis loses acknowledged jobs"})
		return DurabilityMemory
	}
	if i.text("aof_last_write_status") == "err" {
		r.find(Finding{Fatal, "aof_error", i.addr, "Redis cannot write its append-only file: look at its disk"})
	}
	if f, ok := i.replay.finding(i.addr); ok {
		r.find(f)
		if f.Severity == Fatal {
			return DurabilityMemory
		}
	}
	class, severity := DurabilityReplica, Info
	if o.Durability == DurabilityReplica {
		severity = Warning
	}
	if replicas := i.replicasOnline(); replicas < o.Replicas {
		r.find(Finding{severity, "replicas", i.addr, fmt.Sprintf(
			"%d replicas are attached, %d are needed to survive the loss of the server", replicas, o.Replicas)})
		class = DurabilityLocal
	}
	// INFO counts good replicas only where a number of them is demanded.
	if !i.has("min_slaves_good_slaves") {
		r.find(Finding{severity, "min_replicas", i.addr,
			"min-replicas-to-write is not set: a primary that is cut off goes on granting leases; set it to 1, with min-replicas-max-lag 2"})
		class = DurabilityLocal
	}
	return class
}

// askAll asks every primary.
func askAll(ctx context.Context, client redis.UniversalClient, prefix string) ([]info, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		i, err := ask(ctx, client, "", prefix)
		return []info{i}, err
	}
	var mu sync.Mutex
	var all []info
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		i, err := ask(ctx, c, c.Options().Addr, prefix)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, i)
		return err
	})
	return all, err
}

// ask reads INFO, and where that says that there is an append-only file, whether the server can
// load it.
func ask(ctx context.Context, c redis.UniversalClient, addr, prefix string) (info, error) {
	text, err := c.Info(ctx).Result()
	i := parseInfo(addr, text)
	if err == nil && i.text("aof_enabled") == "1" && i.atLeast(7, 0) {
		i.replay, err = askReplay(ctx, c, prefix)
	}
	return i, err
}
