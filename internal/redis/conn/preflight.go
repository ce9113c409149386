package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/redis/go-redis/v9"
)

// Severity is how serious a finding is.
type Severity uint8

// Severities.
const (
	Info    Severity = iota // worth knowing
	Warning                 // data may be lost in some failure
	Fatal                   // data will be lost, or nothing works
)

func (s Severity) String() string { return [...]string{"info", "warning", "fatal"}[min(s, Fatal)] }

// Finding is a fact about a server that an operator should know.
type Finding struct {
	Severity Severity
	Code     string // stable, for alerts: "eviction", "no_persistence" ...
	Server   string // address; empty for a single server
	Text     string // what, and what to do about it
}

// Report is the result of a check of the servers.
type Report struct {
	Version  string
	Embedded bool // an imitation of Redis, not a server
	Cluster  bool
	Servers  int // number of primaries
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

// PreflightOptions name the servers and what is demanded of them.
type PreflightOptions struct {
	Client redis.UniversalClient
	// Prefix is that of the keyspace.
	Prefix string
	// Embedded: the server is an embedded imitation of Redis.
	Embedded bool
	// Durability is the class that is demanded.
	Durability Durability
	// Replicas is how many must confirm a write in class replica.
	Replicas int
	// AllowUnsafe accepts findings that are [Finding.Forgivable].
	AllowUnsafe bool
	// Timeout bounds the checks.
	Timeout time.Duration
}

// Preflight checks the servers and reports what is unsafe about them. It uses INFO, and ACL
// DRYRUN where that is allowed; managed servers refuse CONFIG.
func Preflight(ctx context.Context, o PreflightOptions) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	servers, err := inspectServers(ctx, o.Client, o.Prefix)
	if err != nil {
		return Report{}, rediserr.Wrap("asking the servers", err)
	}
	r := Report{Class: DurabilityReplica, Servers: len(servers)}
	_, r.Cluster = o.Client.(*redis.ClusterClient)
	for _, i := range servers {
		r.judgeServer(i, o)
	}
	r.compareWithDemand(o)
	return r, nil
}

// compareWithDemand adds a finding if the servers give less than is demanded.
func (r *Report) compareWithDemand(o PreflightOptions) {
	// A finding that makes the server unusable already has the reason.
	unusable := func(f Finding) bool { return f.Code == codeAOFReplay && f.Severity == Fatal }
	if r.Class < o.Durability && !slices.ContainsFunc(r.Findings, unusable) {
		r.Add(Finding{Fatal, "durability", "", fmt.Sprintf(
			"durability class %s is demanded, but the server gives %s: %s", o.Durability, r.Class,
			durabilityRemedy(o))})
	}
}

func durabilityRemedy(o PreflightOptions) string {
	if o.Durability == DurabilityLocal {
		return "turn on appendonly"
	}
	return fmt.Sprintf("turn on appendonly, attach at least %d replicas, "+
		"and set min-replicas-to-write 1 with min-replicas-max-lag 2 on every server", o.Replicas)
}

// Refusal is an error with all fatal findings, unless AllowUnsafe accepts them; nil for none.
func (r Report) Refusal(o PreflightOptions) error {
	var all []error
	for _, f := range r.Findings {
		if f.Severity == Fatal && !(o.AllowUnsafe && f.Forgivable()) {
			all = append(all, errors.New(strings.TrimPrefix(f.Server+": "+f.Text, ": ")))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", rediserr.ErrUnsafe, errors.Join(all...))
}

// Forgivable reports whether AllowUnsafe accepts a fatal finding: data may be lost, but everything works.
func (f Finding) Forgivable() bool {
	return slices.Contains([]string{"eviction", "durability", codeAOFReplay}, f.Code)
}

// Add adds a finding.
func (r *Report) Add(f Finding) { r.Findings = append(r.Findings, f) }

// judgeServer adds the findings about one server.
func (r *Report) judgeServer(i serverInfo, o PreflightOptions) {
	if !i.has("redis_version") || o.Embedded {
		r.Embedded, r.Class, r.Version = true, DurabilityMemory, "embedded"
		r.Add(Finding{Warning, "embedded", i.addr,
			"an embedded imitation of Redis keeps nothing over a restart; use it for trials only"})
		return
	}
	r.Version = i.text("redis_version")
	if !i.atLeast(7, 0) {
		r.Add(Finding{Fatal, "version", i.addr, "Redis " + r.Version + " is too old: 7.0 or later is needed"})
	} else if hasVulnerableLua(i) {
		r.Add(luaFinding(i))
	}
	if i.text("role") != "master" {
		r.Add(Finding{Fatal, "role", i.addr,
			"this server is a replica: give the address of the primary, or use redis+sentinel://"})
	}
	if policy := i.text("maxmemory_policy"); policy != "noeviction" {
		r.Add(Finding{Fatal, "eviction", i.addr,
			"maxmemory-policy " + policy + " deletes jobs or locks when memory is full: set it to noeviction"})
	}
	if i.number("maxmemory") == 0 {
		r.Add(Finding{Info, "maxmemory", i.addr,
			"maxmemory is not set: a full host will kill Redis rather than refuse new jobs"})
	}
	r.Class = min(r.Class, r.judgeDurability(i, o))
}

func (r *Report) judgeDurability(i serverInfo, o PreflightOptions) Durability {
	if i.text("aof_enabled") != "1" {
		r.Add(Finding{Warning, "no_persistence", i.addr,
			"appendonly is off: a restart of Redis loses acknowledged jobs"})
		return DurabilityMemory
	}
	if i.text("aof_last_write_status") == "err" {
		r.Add(Finding{Fatal, "aof_error", i.addr, "Redis cannot write its append-only file: look at its disk"})
	}
	if f, ok := i.replay.finding(i.addr); ok {
		r.Add(f)
		if f.Severity == Fatal {
			return DurabilityMemory
		}
	}
	class, severity := DurabilityReplica, Info
	if o.Durability == DurabilityReplica {
		severity = Warning
	}
	if replicas := i.replicasOnline(); replicas < o.Replicas {
		r.Add(Finding{severity, "replicas", i.addr, fmt.Sprintf(
			"%d replicas are attached, %d are needed to survive the loss of the server", replicas, o.Replicas)})
		class = DurabilityLocal
	}
	// INFO counts good replicas only if a number of them is demanded.
	if !i.has("min_slaves_good_slaves") {
		r.Add(Finding{severity, "min_replicas", i.addr,
			"min-replicas-to-write is not set: a primary that is cut off goes on granting leases; " +
				"set it to 1, with min-replicas-max-lag 2"})
		class = DurabilityLocal
	}
	return class
}

// inspectServers inspects every primary.
func inspectServers(ctx context.Context, client redis.UniversalClient, prefix string) ([]serverInfo, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		i, err := inspectServer(ctx, client, "", prefix)
		return []serverInfo{i}, err
	}
	var mu sync.Mutex
	var all []serverInfo
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		i, err := inspectServer(ctx, c, c.Options().Addr, prefix)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, i)
		return err
	})
	return all, err
}

// inspectServer reads INFO and, if there is an append-only file, whether the server can load it.
func inspectServer(ctx context.Context, c redis.UniversalClient, addr, prefix string) (serverInfo, error) {
	text, err := c.Info(ctx).Result()
	i := parseInfo(addr, text)
	if err == nil && i.text("aof_enabled") == "1" && i.atLeast(7, 0) {
		i.replay, err = checkAOFReplay(ctx, c, prefix)
	}
	return i, err
}

// MayPass reports whether all fatal findings may disappear by themselves: an election makes a replica the
// primary, and replicas connect after they have synchronised.
func (r Report) MayPass(o PreflightOptions) bool {
	lacks := func(code string) bool {
		return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == code })
	}
	replicas := lacks("replicas") && !lacks("min_replicas") && !lacks("no_persistence")
	for _, f := range r.Findings {
		waits := f.Code == "role" || f.Code == "durability" && replicas
		if f.Severity == Fatal && !waits && !(o.AllowUnsafe && f.Forgivable()) {
			return false
		}
	}
	return true
}
