package shardlock

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// tokenLen is fixed: redislock compares tokens by the length of the
// challenger's, so a shorter one could pass for a longer.
const (
	tokenBytes = 16
	tokenLen   = 22
)

// Separator is between the parts of a lock's value; no name of a node has it.
const Separator = "|"

// newToken has redislock's own form. It is chosen here because an attempt whose answer was lost can only be
// repeated, or discarded, by a caller that knows the token.
func newToken() string {
	b := make([]byte, tokenBytes)
	rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseHolder splits a lock's value, as read from Redis, into the name and the peer address of its holder. It is
// false if the value has another form.
func ParseHolder(value string) (node, peerAddr string, ok bool) {
	h := parseHolder(value)
	return h.node, h.peerAddr, h.node != ""
}

// lockHolder is the parsed value of a lock. Without a node the value is not a lock's. Without a process it is of
// another version, whose heartbeats are unknown.
type lockHolder struct {
	node, peerAddr, process string
}

func parseHolder(value string) lockHolder {
	if len(value) <= tokenLen {
		return lockHolder{}
	}
	parts := strings.Split(value[tokenLen:], Separator)
	if len(parts) < 2 || parts[0] == "" {
		return lockHolder{}
	}
	h := lockHolder{node: parts[0], peerAddr: parts[1]}
	if len(parts) > 2 {
		h.process = parts[2]
	}
	return h
}

// Holder is the holder of a shard as stored in Redis.
type Holder struct {
	Shard int
	// Node and PeerAddr are empty if no process holds the shard.
	Node     string
	PeerAddr string
	// TTL is the rest of the lock's time; negative if it has no limit.
	TTL time.Duration
	// Unknown is true if the lock could not be read.
	Unknown bool
}

// Holders reads the holders of all shards, in order, in one round trip to each server. With an error the shards that
// could not be read are marked as unknown.
func (m *Manager) Holders(ctx context.Context) ([]Holder, error) {
	values := make([]*redis.StringCmd, m.o.Shards)
	ttls := make([]*redis.DurationCmd, m.o.Shards)
	_, err := m.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range m.o.Shards {
			values[i] = p.Get(ctx, m.o.Key(i))
			ttls[i] = p.PTTL(ctx, m.o.Key(i))
		}
		return nil
	})
	holders := make([]Holder, m.o.Shards)
	for i := range holders {
		holders[i].Shard = i
		value, e := values[i].Result()
		if e != nil {
			if !errors.Is(e, redis.Nil) {
				holders[i].Unknown, err = true, e
			}
			continue
		}
		holders[i].Node, holders[i].PeerAddr, _ = ParseHolder(value)
		holders[i].TTL = ttls[i].Val()
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return holders, fmt.Errorf("shardlock: read holders: %w", err)
	}
	return holders, nil
}
