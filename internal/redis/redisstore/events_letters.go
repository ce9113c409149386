package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

const (
	// maxUndelivered is how many events that a webhook gave up on each shard keeps: the newest. It keeps fewer where
	// they are large; see hook.lua.
	maxUndelivered = 1000
	// lettersPerCall bounds the letters that are read in one pipeline, and firstLetters those that are read before
	// anything is known of their sizes.
	lettersPerCall = 2 * maxUndelivered
	firstLetters   = 128
)

// undeliveredSet is what a webhook gave up on in a shard; hook "" is the set in which an older
// version keeps that of all webhooks. It is written by nodes of that version only, and
// read for as long as it is there.
type undeliveredSet struct {
	shard int
	hook  string
	key   string
	size  int
	read  int // so many of them are to be read
	done  int // so many of these have been read
}

// undeliveredSets finds the sets of webhooks in shards that hold anything. All of each is to
// be read.
func (s *Store) undeliveredSets(ctx context.Context, hooks []string, shards []int) ([]undeliveredSet, error) {
	var all, found []undeliveredSet
	for _, shard := range shards {
		for _, hook := range append([]string{""}, hooks...) {
			all = append(all, undeliveredSet{shard: shard, hook: hook, key: s.shards[shard].UndeliveredKey(hook)})
		}
	}
	for part := range slices.Chunk(all, maxReadsPerPipeline) {
		ops := make([]*runner.Op, len(part))
		for i, set := range part {
			ops[i] = runner.NewCommand("webhooks", set.key, "zcard", set.key)
		}
		if err := s.runner.Run(ctx, ops...); err != nil {
			return nil, err
		}
		for i, set := range part {
			set.size = int(ops[i].Reply.IntAt(0))
			if set.size > 0 {
				set.read = set.size
				found = append(found, set)
			}
		}
	}
	return found, nil
}

// letterRange is a part of a set: the letters from one rank to another.
type letterRange struct {
	set         undeliveredSet
	first, last int
}

func (r letterRange) command(oldest bool) *runner.Op {
	args := []any{"zrange", r.set.key, r.first, r.last}
	if !oldest {
		args = append(args, "rev")
	}
	return runner.NewCommand("webhooks", r.set.key, append(args, "withscores")...)
}

// nextLetters selects the next letters to be read of sets, so many at most. It returns the sets with something left.
func nextLetters(sets []undeliveredSet, most int) (parts []letterRange, rest []undeliveredSet) {
	for most > 0 && len(sets) > 0 && len(parts) < maxReadsPerPipeline {
		set := &sets[0]
		n := min(set.read-set.done, most)
		parts = append(parts, letterRange{*set, set.done, set.done + n - 1})
		set.done, most = set.done+n, most-n
		if set.done >= set.read {
			sets = sets[1:]
		}
	}
	return parts, sets
}

// eachUndelivered reads what is to be read of sets, about maxReplyBytes of it at a time, and hands
// on each part. What changes meanwhile may be missed, or read twice.
func (s *Store) eachUndelivered(ctx context.Context, sets []undeliveredSet, oldest bool,
	take func([]job.UndeliveredEvent)) error {
	limit, letters, bytes := firstLetters, 0, 0
	for len(sets) > 0 {
		var parts []letterRange
		parts, sets = nextLetters(sets, limit)
		ops := make([]*runner.Op, len(parts))
		for i, part := range parts {
			ops[i] = part.command(oldest)
			ops[i].ReplySize = maxReplyBytes / len(parts)
		}
		if err := s.runner.Run(ctx, ops...); err != nil {
			return err
		}
		var read []job.UndeliveredEvent
		for i, o := range ops {
			pairs := o.Reply.Pairs()
			for k := 0; k+1 < len(pairs); k += 2 {
				text := pairs.TextAt(k)
				bytes += len(text)
				read = append(read, decodeLetter(parts[i].set.shard, text, pairs.ScoreAt(k+1)))
			}
		}
		letters += len(read)
		take(read)
		limit = min(lettersPerCall, max(1, maxReplyBytes/max(1, bytes/max(1, letters))))
	}
	return nil
}

// UndeliveredEvents lists events that webhooks gave up on: no more of them are read than it
// takes to know which come first, and few at a time.
func (s *Store) UndeliveredEvents(ctx context.Context, q job.UndeliveredQuery) ([]job.UndeliveredEvent, error) {
	hooks, shards := []string{q.Webhook}, s.allShards()
	if q.Event != "" {
		shards = s.shardsOfEvent(q.Event)
		if shards == nil {
			return nil, nil
		}
	}
	if q.Webhook == "" {
		var err error
		hooks, err = s.hookNames(ctx, shards)
		if err != nil {
			return nil, err
		}
	}
	sets, err := s.undeliveredSets(ctx, hooks, shards)
	if err != nil {
		return nil, err
	}
	for i := range sets {
		set := &sets[i]
		if sifted := q.Event != "" || set.hook == "" && q.Webhook != ""; !sifted {
			set.read = min(set.read, q.Limit)
		}
	}
	var out []job.UndeliveredEvent
	err = s.eachUndelivered(ctx, sets, q.Oldest, func(part []job.UndeliveredEvent) {
		for _, l := range part {
			if (q.Webhook == "" || l.Webhook == q.Webhook) && (q.Event == "" || l.Event.ID() == q.Event) {
				out = append(out, l)
			}
		}
		slices.SortStableFunc(out, func(a, b job.UndeliveredEvent) int {
			if q.Oldest {
				return cmp.Compare(a.AtMS, b.AtMS)
			}
			return cmp.Compare(b.AtMS, a.AtMS)
		})
		out = out[:min(q.Limit, len(out))]
	})
	return out, err
}

// CountUndeliveredEvents counts what webhooks gave up on, in all shards.
func (s *Store) CountUndeliveredEvents(ctx context.Context, hooks []string) (map[string]int, error) {
	sets, err := s.undeliveredSets(ctx, hooks, s.allShards())
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int, len(hooks))
	var old []undeliveredSet
	for _, set := range sets {
		if set.hook == "" {
			old = append(old, set)
			continue
		}
		counts[set.hook] += set.size
	}
	return counts, s.eachUndelivered(ctx, old, true, func(part []job.UndeliveredEvent) {
		for _, l := range part {
			counts[l.Webhook]++
		}
	})
}

// DeferUndeliveredEvent makes it, wherever it is, one that was given up on at another time.
func (s *Store) DeferUndeliveredEvent(ctx context.Context, l job.UndeliveredEvent, atMS unixtime.Milli) error {
	keys := s.shards[l.Event.Shard]
	key, legacy := keys.UndeliveredKey(l.Webhook), keys.UndeliveredKey("")
	return s.runner.Run(ctx,
		runner.NewCommand("webhooks", key, "zadd", key, "xx", int64(atMS), l.ID),
		runner.NewCommand("webhooks", legacy, "zadd", legacy, "xx", int64(atMS), l.ID))
}

// DeleteUndeliveredEvent deletes one, from wherever it is.
func (s *Store) DeleteUndeliveredEvent(ctx context.Context, l job.UndeliveredEvent) error {
	keys := s.shards[l.Event.Shard]
	key, legacy := keys.UndeliveredKey(l.Webhook), keys.UndeliveredKey("")
	return s.runner.Run(ctx,
		runner.NewCommand("webhooks", key, "zrem", key, l.ID),
		runner.NewCommand("webhooks", legacy, "zrem", legacy, l.ID))
}

// hookNames are the webhooks that shards know. One that gave up on anything is known.
func (s *Store) hookNames(ctx context.Context, shards []int) ([]string, error) {
	states, err := s.WebhookProgress(ctx, shards)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, state := range states {
		for name := range state {
			known[name] = true
		}
	}
	return slices.Sorted(maps.Keys(known)), nil
}

func (s *Store) allShards() []int {
	shards := make([]int, len(s.shards))
	for i := range shards {
		shards[i] = i
	}
	return shards
}

// shardsOfEvent is the shard that an event's id names, if there is such a shard.
func (s *Store) shardsOfEvent(id string) []int {
	text, _, _ := strings.Cut(id, "-")
	shard, err := strconv.Atoi(text)
	if err != nil || shard < 0 || shard >= len(s.shards) {
		return nil
	}
	return []int{shard}
}

// letterText is a letter as it is stored. The score of its set counts as the time at
// which it was given up on.
type letterText struct {
	Hook   string `json:"h"`
	Event  string `json:"e"`
	Place  string `json:"p"`
	Tries  uint32 `json:"n"`
	AtMS   int64  `json:"at"`
	Reason string `json:"r"`
}

func encodeLetter(l *job.UndeliveredEvent) string {
	return encodeText(letterText{
		Hook: l.Webhook, Event: encodeEvent(&l.Event), Place: placeText(l.Event.Place), Tries: l.Attempts,
		AtMS: int64(l.AtMS), Reason: l.Reason,
	})
}

func decodeLetter(shard int, text string, atMS int64) job.UndeliveredEvent {
	var t letterText
	if json.Unmarshal([]byte(text), &t) != nil {
		t = letterText{} // written by another program
	}
	return job.UndeliveredEvent{
		ID: text, Webhook: t.Hook, Event: decodeEvent(shard, t.Place, t.Event), Attempts: t.Tries, AtMS: unixtime.Milli(atMS),
		Reason: t.Reason,
	}
}
