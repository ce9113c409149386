package redisstore

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Runner runs the calls of the store, for packages that read what it stores.
func (s *Store) Runner() *runner.Runner { return s.runner }

// StoredParts are the parts of a record that are stored.
type StoredParts struct{ State, Definition bool }

// StoredParts reads which parts of records of one shard are stored, whether they can be read or not. The
// definition of a run that is a record of its own is that of its job. All are read at one instant.
func (s *Store) StoredParts(ctx context.Context, shard int, ids []job.RecordID) ([]StoredParts, error) {
	return s.readParts(ctx, s.newRawRead(shard, ids))
}

// StoredOwnParts is [Store.StoredParts], and the definition of a run is its own: it has one if it has a payload of its
// own.
func (s *Store) StoredOwnParts(ctx context.Context, shard int, ids []job.RecordID) ([]StoredParts, error) {
	return s.readParts(ctx, s.newNamedRead(shard, ids, ids))
}

func (s *Store) readParts(ctx context.Context, read *rawRead) ([]StoredParts, error) {
	err := s.performReads(ctx, []*rawRead{read})
	if err != nil {
		return nil, err
	}
	var parts []StoredParts
	for _, r := range read.raw() {
		parts = append(parts, StoredParts{State: r.hasState, Definition: r.hasDef})
	}
	return parts, nil
}

// RepairEntry brings the entry that a lane has of a record in line with the record's state. It changes nothing
// if the record has been decided on since the state was read.
func (s *Store) RepairEntry(ctx context.Context, shard int, in job.Lane, id job.RecordID, state job.State) error {
	return s.repairIndexEntries(ctx, shard, []overdue{{record: id, state: state, lane: in}})
}

// RemoveEntry removes the entry that a lane has of a missing record. It changes nothing if there is a record.
func (s *Store) RemoveEntry(ctx context.Context, shard int, from job.Lane, id job.RecordID) error {
	return s.mend(ctx, shard, []job.Lane{from}, string(id), firstMended, "")
}

// RemoveRun removes an ended run of a missing record from the history; field is its name there. It changes
// nothing if there is a record.
func (s *Store) RemoveRun(ctx context.Context, shard int, id job.RecordID, field string) error {
	return s.mend(ctx, shard, nil, string(id), "", field)
}

// RemoveRevisions removes the revisions of a missing job. It changes nothing if there is a job.
func (s *Store) RemoveRevisions(ctx context.Context, shard int, id job.RecordID) error {
	return s.mendBeside(ctx, shard, s.shards[shard].Revisions, nil, string(id), "", string(id))
}

// RepairLaneHead sets the entry of a lane in the index of lanes by the lane's first record.
func (s *Store) RepairLaneHead(ctx context.Context, shard int, lane job.Lane) error {
	return s.mend(ctx, shard, []job.Lane{lane})
}

// firstMended is the place of the first lane in the KEYS of mend.lua.
const firstMended = 6

// mend corrects the index of lanes for some lanes, and removes what the script's other arguments
// name. It reports lanes that became due earlier to the holder.
func (s *Store) mend(ctx context.Context, shard int, lanes []job.Lane, argv ...any) error {
	return s.mendBeside(ctx, shard, s.shards[shard].Hist, lanes, argv...)
}

// mendBeside is mend with the hash from which fields are removed.
func (s *Store) mendBeside(ctx context.Context, shard int, hash string, lanes []job.Lane, argv ...any) error {
	keys := s.shards[shard]
	fixed := []string{keys.Meta, keys.State, hash, keys.Lanes, keys.Lock}
	places := newLaneKeys(keys, len(fixed))
	for _, l := range lanes {
		places.placeOf(l)
	}
	o := runner.NewScriptCall(s.scripts.mend, shard, places.appendKeysTo(fixed), argv)
	if err := s.runner.Run(ctx, o); err != nil {
		return err
	}
	news := earlierLanes{}
	news.addPairs(places, o.Reply.ListAt(3), o.Reply.TextAt(4))
	s.reportEarlierLanes(shard, news)
	return nil
}
