package redisstore

import (
	"context"

	"github.com/fermata-io/fermata/internal/redis/runner"
)

// CountLanes counts the lanes of a shard that hold any record.
func (s *Store) CountLanes(ctx context.Context, shard int) (int64, error) {
	key := s.shards[shard].Lanes
	o := runner.NewCommand("zcard", key, "zcard", key)
	err := s.runner.Run(ctx, o)
	return o.Reply.IntAt(0), err
}
