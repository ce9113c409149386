package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisacl"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// TestReplicaClass demands that replicas confirm.
func TestReplicaClass(t *testing.T) {
	s := redistest.StartSentinel(t, 1, 3, 2, redistest.WithMinReplicas(1, 10))
	url := fmt.Sprintf("redis+sentinel://%s/%s", strings.Join(s.SentinelAddrs(), ","), s.MasterName())
	patient, err := conn.NewClient(conn.ClientOptions{URL: url, ReadTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = patient.Close() })
	w := storetest.NewWorld(t, newObserver(t, s.Nodes()[0], url), func(o *redisstore.Options) {
		o.Client, o.Durability, o.WaitTimeout = patient, conn.DurabilityReplica, 20*time.Second
	})
	hasty := w.Open(asOptions(t, url), func(o *redisstore.Options) {
		o.Durability, o.WaitTimeout = conn.DurabilityReplica, 200*time.Millisecond
	})
	id := w.InShard(0, 1)[0]
	w.Add(storetest.Definition(id))
	w.Clock.Add(60_000)
	l := w.Lease(0, 1)[0]
	replica := s.Nodes()[1]
	replica.Pause()
	settle := w.Settle(l, job.OutcomeSucceeded)
	reply := hasty.Apply(t.Context(), 0, []job.Write{settle})
	if !errors.Is(reply.Err, job.ErrDurability) || len(reply.Results) != 1 || reply.Results[0].Code != job.Written {
		t.Errorf("the replica is frozen: %+v", reply)
	}
	replica.Resume()
	redistest.Eventually(t, redistest.Patience, "confirmation of a repeat", func(context.Context) error {
		return hasty.Apply(t.Context(), 0, []job.Write{settle}).Err
	})
	if got := w.Get(id).State; got.Runs != 1 {
		t.Errorf("state %+v", got)
	}
}

// TestPreflight reports what is wrong with a server, and refuses the worst.
func TestPreflight(t *testing.T) {
	open := func(server *redistest.Server, adjust func(*redisstore.Options)) error {
		o := redisstore.Options{Client: dialRedis(t, server.URL()), Prefix: "preflight", Shards: 1}
		adjust(&o)
		_, err := redisstore.Open(t.Context(), o)
		return err
	}
	as := func(d conn.Durability) func(*redisstore.Options) {
		return func(o *redisstore.Options) { o.Durability = d }
	}
	plain := redistest.Start(t)
	if err := open(plain, as(conn.DurabilityMemory)); err != nil {
		t.Errorf("a server in memory: %v", err)
	}
	if err := open(plain, as(conn.DurabilityLocal)); !errors.Is(err, rediserr.ErrUnsafe) || !strings.Contains(err.Error(), "appendonly") {
		t.Errorf("class local without an append-only file: %v", err)
	}
	aof := redistest.Start(t, redistest.WithAOF("always"))
	if err := open(aof, as(conn.DurabilityLocal)); err != nil {
		t.Errorf("class local: %v", err)
	}
	if err := open(aof, as(conn.DurabilityReplica)); !errors.Is(err, rediserr.ErrUnsafe) {
		t.Errorf("class replica without replicas: %v", err)
	}
	evicting := redistest.Start(t, redistest.WithConfig("maxmemory", "100mb", "maxmemory-policy", "volatile-lru"))
	if err := open(evicting, as(conn.DurabilityMemory)); !errors.Is(err, rediserr.ErrUnsafe) || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("an evicting server: %v", err)
	}
	if err := open(evicting, func(o *redisstore.Options) { o.AllowUnsafe = true }); err != nil {
		t.Errorf("an evicting server, allowed: %v", err)
	}
	host, port, _ := strings.Cut(plain.Addr(), ":")
	replica := redistest.Start(t, redistest.WithConfig("replicaof", host+" "+port))
	if err := open(replica, func(o *redisstore.Options) { o.AllowUnsafe = true }); !errors.Is(err, rediserr.ErrUnsafe) || !strings.Contains(err.Error(), "replica") {
		t.Errorf("a replica: %v", err)
	}
	plain.Stop()
	if err := open(plain, as(conn.DurabilityMemory)); !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
}

// TestScriptWritesSurviveRestart, with the users that the documents recommend. A server whose default user
// may not do what it has written is refused: it would come back without it.
func TestScriptWritesSurviveRestart(t *testing.T) {
	off := strings.TrimPrefix(redisacl.DefaultUser, "user ")
	server := redistest.Start(t, redistest.WithAOF("always"), redistest.WithACL(off))
	w := storetest.NewWorld(t, server.Client(), func(o *redisstore.Options) {
		o.Client, o.Durability = dialRedis(t, server.URL()), conn.DurabilityLocal
	})
	ids := w.InShard(0, 3)
	for _, id := range ids {
		w.Add(storetest.Once(id, 0))
	}
	reply := w.Store.Lease(t.Context(), []job.LeaseRequest{storetest.LeaseRequest(0, 1, "")})[0]
	if reply.Err != nil || len(reply.Leased) != 1 {
		t.Fatalf("%+v", reply)
	}
	w.MustWrite(0, w.Settle(reply.Leased[0], job.OutcomeSucceeded))
	states := func() (out []job.State) {
		for _, id := range ids {
			out = append(out, w.Get(id).State)
		}
		return out
	}
	before := states()
	server.Kill()
	server.Restart()
	if after := states(); !reflect.DeepEqual(before, after) {
		t.Errorf("before the restart %+v, after it %+v", before, after)
	}

	// The default user's rules in the configuration begin without any rights.
	lacking := redistest.Start(t, redistest.WithAOF("always"), redistest.WithACL("default off"))
	o := redisstore.Options{Client: dialRedis(t, lacking.URL()), Shards: 1, Durability: conn.DurabilityLocal}
	_, err := redisstore.Open(t.Context(), o)
	if !errors.Is(err, rediserr.ErrUnsafe) || !strings.Contains(err.Error(), "default user may not run set") || strings.Contains(err.Error(), "class") {
		t.Errorf("a default user without rights: %v", err)
	}
	o.AllowUnsafe = true
	if _, err := redisstore.Open(t.Context(), o); err != nil {
		t.Errorf("a default user without rights, allowed: %v", err)
	}
	demands := conn.PreflightOptions{
		Client: o.Client, Prefix: redisstore.DefaultPrefix, Durability: o.Durability, Replicas: 1, Timeout: time.Minute,
	}
	if r, err := conn.Preflight(t.Context(), demands); err != nil || r.Class != conn.DurabilityMemory {
		t.Errorf("its class is %v (%v)", r.Class, err)
	}
	o.AllowUnsafe = false
	rules := []any{"acl", "setuser"}
	for rule := range strings.FieldsSeq(off) {
		rules = append(rules, rule)
	}
	if err := lacking.Client().Do(t.Context(), rules...).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := redisstore.Open(t.Context(), o); err != nil {
		t.Errorf("its rights given back: %v", err)
	}
	if err := lacking.Client().Do(t.Context(), "acl", "setuser", "fermata", "-acl|dryrun").Err(); err != nil {
		t.Fatal(err)
	}
	r, err := conn.Preflight(t.Context(), demands)
	told := func(f conn.Finding) bool { return f.Code == "default_user" && f.Severity == conn.Info }
	if err != nil || !slices.ContainsFunc(r.Findings, told) {
		t.Errorf("without the right to ask: %+v (%v)", r, err)
	}
}

// TestReplicaClassNeedsMinReplicas refuses class replica on a primary that would go
// on granting leases when it is cut off from its replica.
func TestReplicaClassNeedsMinReplicas(t *testing.T) {
	server := redistest.Start(t, redistest.WithAOF("always"))
	redistest.Start(t, redistest.WithAOF("always"), redistest.WithConfig("replicaof", strings.Replace(server.Addr(), ":", " ", 1)))
	// Online is not enough: it must have confirmed something.
	connection := server.Client().Conn()
	defer connection.Close()
	redistest.Eventually(t, redistest.Patience, "a replica that confirms", func(ctx context.Context) error {
		if err := connection.Set(ctx, "probe", "1", 0).Err(); err != nil {
			return err
		}
		if n, err := connection.Wait(ctx, 1, 500*time.Millisecond).Result(); err != nil || n < 1 {
			return fmt.Errorf("%d confirmed (%v)", n, err)
		}
		return nil
	})
	o := redisstore.Options{Client: dialRedis(t, server.URL()), Prefix: "minimum", Shards: 1, Durability: conn.DurabilityReplica}
	if _, err := redisstore.Open(t.Context(), o); !errors.Is(err, rediserr.ErrUnsafe) || !strings.Contains(err.Error(), "min-replicas-to-write") {
		t.Errorf("without a minimum: %v", err)
	}
	allowed := o
	allowed.AllowUnsafe = true
	var s *redisstore.Store
	redistest.Eventually(t, redistest.Patience, "a keyspace that the replica confirms", func(context.Context) (err error) {
		s, err = redisstore.Open(t.Context(), allowed)
		return err
	})
	check := func(want conn.Severity, class conn.Durability) {
		t.Helper()
		// The replica may take its time to confirm.
		redistest.Eventually(t, redistest.Patience, "the class that is kept", func(context.Context) error {
			report, err := s.Check(t.Context())
			if got := severityOf(report, "durability"); err != nil || got != want || report.Class != class {
				return fmt.Errorf("durability is %s, want %s; report %+v (%w)", got, want, report, err)
			}
			return nil
		})
	}
	check(conn.Fatal, conn.DurabilityLocal)
	if err := server.Client().ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	check(conn.Info, conn.DurabilityReplica)
	redistest.Eventually(t, redistest.Patience, "with a minimum", func(context.Context) error {
		_, err := redisstore.Open(t.Context(), o)
		return err
	})
}

// severityOf is that of the finding with a code, Info without one.
func severityOf(r conn.Report, code string) conn.Severity {
	for _, f := range r.Findings {
		if f.Code == code {
			return f.Severity
		}
	}
	return conn.Info
}
