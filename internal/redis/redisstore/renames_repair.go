package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// CheckRename returns an error if an entry of the renames of a shard cannot be read. One that has gone is no error.
func (s *Store) CheckRename(ctx context.Context, shard int, field string) error {
	if id, ok := strings.CutPrefix(field, keptField); ok {
		_, err := s.ReadKept(ctx, shard, id)
		return err
	}
	read := runner.NewFieldsRead(shard, s.shards[shard].Renames, []string{field})
	if err := s.runner.Run(ctx, read); err != nil || !read.Reply.HasTextAt(0) {
		return err
	}
	var t namedRenameText
	if err := json.Unmarshal([]byte(read.Reply.TextAt(0)), &t); err != nil || namedField+t.ID != field {
		return fmt.Errorf("%w: rename %s", job.ErrCorrupt, field)
	}
	return nil
}

// renameField is the field of the rename for which a record keeps a name.
func renameField(mark job.RenameMark) string {
	if mark.Arriving {
		return namedField + mark.ID
	}
	return keptField + mark.ID
}

// KnowsRename reports whether the shard has the rename for which a record keeps a name.
func (s *Store) KnowsRename(ctx context.Context, shard int, mark job.RenameMark) (bool, error) {
	read := runner.NewFieldsRead(shard, s.shards[shard].Renames, []string{renameField(mark)})
	err := s.runner.Run(ctx, read)
	return read.Reply.HasTextAt(0), err
}

// FreeName removes a record that keeps a name for a rename that the shard does not know. It changes nothing if it knows
// the rename.
func (s *Store) FreeName(ctx context.Context, shard int, id job.RecordID, mark job.RenameMark, lane job.Lane) error {
	prefix, _, _ := strings.Cut(renameField(mark), mark.ID)
	h := job.RenameHandle{Shard: shard, Lane: lane, NamedRename: job.NamedRename{Rename: job.Rename{ID: mark.ID}}}
	_, err := s.endRename(ctx, h, prefix, "", id.Key())
	return err
}
