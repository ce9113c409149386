package fsck

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

const (
	// stepSize is how many fields one command of a check looks at. Definitions
	// carry payloads.
	stepSize      = 500
	smallStepSize = 50
	// maxRechecks is how often a suspicion is looked into. A record that changes
	// each time is alive, and not wrong.
	maxRechecks = 5
)

// Checker checks the shards of a store. It is safe for concurrent use.
type Checker struct{ store *redisstore.Store }

// New makes a checker of a store.
func New(store *redisstore.Store) *Checker { return &Checker{store} }

// CheckShard compares all that is stored in a shard: states, definitions, revisions, histories, the index of each lane,
// the index of lanes, that of objectives and those of unsuccessful runs, and names that are kept for renames. With
// repair, what can be repaired without a loss is: entries of the indexes are set by the records, and histories and
// revisions without a record are deleted. With an error it returns what it found before.
func (c *Checker) CheckShard(ctx context.Context, shard int, repair bool) (job.ConsistencyReport, error) {
	if shard < 0 || shard >= c.store.Shards() {
		return job.ConsistencyReport{}, fmt.Errorf("audit: there is no shard %d", shard)
	}
	a := &check{
		store: c.store, runner: c.store.Runner(), ctx: ctx, shard: shard, keys: c.store.Runner().Shards()[shard],
		repair: repair,
		lanes:  map[job.Lane]bool{}, defined: map[job.RecordID]bool{}, unusable: map[job.RecordID]bool{},
		slots: map[job.RecordID]uint64{}, runs: map[job.RecordID]uint64{}, maxLag: map[job.RecordID]time.Duration{},
		renaming: map[job.RecordID]job.RenameMark{},
	}
	for _, pass := range []func() error{
		a.checkDefinitions, a.checkStates, a.checkFamilies, a.collectIndexedLanes,
		a.checkLaneEntries, a.checkLaneIndex, a.checkHistories, a.checkRevisions, a.checkUnsuccessful, a.checkRenames,
	} {
		if err := pass(); err != nil {
			return a.report, err
		}
	}
	return a.report, nil
}

// check is one check of a shard, pass by pass. Later passes use what earlier ones have seen.
type check struct {
	store  *redisstore.Store
	runner *runner.Runner
	ctx    context.Context
	shard  int
	keys   runner.ShardKeys
	repair bool
	report job.ConsistencyReport

	lanes    map[job.Lane]bool       // that states or the index of lanes name
	defined  map[job.RecordID]bool   // records that have a definition, and whether a state was seen of them
	unusable map[job.RecordID]bool   // records that are kept out of the schedule, whatever their state is
	slots    map[job.RecordID]uint64 // job -> slots that its state has as taken
	runs     map[job.RecordID]uint64 // job -> slots of the runs that are there
	maxLag   map[job.RecordID]time.Duration
	renaming map[job.RecordID]job.RenameMark // records that keep a name for a rename
}

func (a *check) addFinding(f job.Finding) {
	if len(a.report.Findings) == job.MaxFindings {
		a.report.More = true
		return
	}
	a.report.Findings = append(a.report.Findings, f)
}

// scanHash hands the fields of a hash to take, with their values.
func (a *check) scanHash(key string, step int, take func(fields, values []string) error) error {
	for at := "0"; ; {
		o := runner.NewCommand("hscan", key, "hscan", key, at, "count", step)
		if err := a.runner.Run(a.ctx, o); err != nil {
			return err
		}
		pairs := o.Reply.ListAt(1)
		var fields, values []string
		for i := 0; i+1 < len(pairs); i += 2 {
			fields, values = append(fields, pairs.TextAt(i)), append(values, pairs.TextAt(i+1))
		}
		if err := take(fields, values); err != nil {
			return err
		}
		at = o.Reply.TextAt(0)
		if at == "0" {
			return nil
		}
	}
}

// checkHistories looks for ended runs whose record is gone.
func (a *check) checkHistories() error {
	return a.scanHash(a.keys.Hist, stepSize, func(fields, _ []string) error {
		records := make([]job.RecordID, len(fields))
		for i, field := range fields {
			records[i] = job.RecordID(field[:max(0, strings.LastIndexByte(field, '.'))])
		}
		if len(records) == 0 {
			return nil
		}
		states := runner.NewFieldsRead(a.shard, a.keys.State, records)
		if err := a.runner.Run(a.ctx, states); err != nil {
			return err
		}
		for i, field := range fields {
			if states.Reply.HasTextAt(i) {
				continue
			}
			if err := a.checkOrphanedRun(records[i], field); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *check) checkOrphanedRun(record job.RecordID, field string) error {
	still := runner.NewFieldsRead(a.shard, a.keys.Hist, []string{field})
	if err := a.runner.Run(a.ctx, still); err != nil || !still.Reply.HasTextAt(0) {
		return err
	}
	if text, err := a.stateText(record); err != nil || text != "" {
		return err
	}
	f := job.Finding{Fault: job.FaultHistory, Record: record,
		Detail: "an ended run of a record that does not exist: " + field}
	if a.repair {
		if err := a.store.RemoveRun(a.ctx, a.shard, record, field); err != nil {
			return err
		}
		f.Repaired = true
	}
	a.addFinding(f)
	return nil
}
