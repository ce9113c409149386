package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/job"
)

// keptLetters is how many events that webhooks gave up on a shard keeps: the newest.
const keptLetters = 1000

// HookStates reads how far webhooks are with shards, by name.
func (s *Store) HookStates(ctx context.Context, shards []int) ([]map[string]job.HookState, error) {
	ops := make([]*op, len(shards))
	for i, shard := range shards {
		key := s.shards[shard].hooks
		ops[i] = command("webhooks", key, "hgetall", key)
	}
	if err := s.perform(ctx, ops...); err != nil {
		return nil, err
	}
	out := make([]map[string]job.HookState, len(shards))
	for i, o := range ops {
		out[i] = map[string]job.HookState{}
		for name, text := range readHash(o.reply) {
			if state, ok := parseHook(text); ok {
				out[i][name] = state
			}
		}
	}
	return out, nil
}

// SaveHook stores how far a webhook is with a shard and, in the same step, the event
// that it gave up on, if there is one. It answers job.ErrNotHolder if the shard's lock
// has another value.
func (s *Store) SaveHook(ctx context.Context, shard int, lockValue, hook string, state job.HookState, letter *job.HookLetter) error {
	keys := s.shards[shard]
	argv := []any{lockValue, hook, hookText(state), keptLetters}
	if letter != nil {
		argv = append(argv, letter.AtMS, encodeLetter(letter))
	}
	o := call(s.scripts.hook, noShard, []string{keys.lock, keys.hooks, keys.hookLetters}, argv)
	if err := s.perform(ctx, o); err != nil {
		return err
	}
	if o.reply.int(0) == 2 {
		return fmt.Errorf("webhook %s: %w", hook, job.ErrNotHolder)
	}
	return nil
}

// ForgetHooks deletes what is stored of webhooks that are no more.
func (s *Store) ForgetHooks(ctx context.Context, shard int, hooks []string) error {
	key := s.shards[shard].hooks
	args := []any{"hdel", key}
	for _, h := range hooks {
		args = append(args, h)
	}
	return s.perform(ctx, command("webhooks", key, args...))
}

// HookLetters lists up to n events that a webhook ("": any) gave up on, of each shard,
// newest first.
func (s *Store) HookLetters(ctx context.Context, hook string, n int) ([]job.HookLetter, error) {
	ops := make([]*op, len(s.shards))
	for i, k := range s.shards {
		ops[i] = command("webhooks", k.hookLetters, "zrange", k.hookLetters, 0, -1)
	}
	if err := s.perform(ctx, ops...); err != nil {
		return nil, err
	}
	var out []job.HookLetter
	for shard, o := range ops {
		for i := range o.reply {
			if l := decodeLetter(shard, o.reply.text(i)); hook == "" || l.Hook == hook {
				out = append(out, l)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b job.HookLetter) int { return cmp.Compare(b.AtMS, a.AtMS) })
	return out[:min(n, len(out))], nil
}

// DropHookLetter deletes one.
func (s *Store) DropHookLetter(ctx context.Context, l job.HookLetter) error {
	key := s.shards[l.Happening.Shard].hookLetters
	return s.perform(ctx, command("webhooks", key, "zrem", key, l.ID))
}

// letterText is a letter as it is stored.
type letterText struct {
	Hook   string `json:"h"`
	Event  string `json:"e"`
	Place  string `json:"p"`
	Tries  uint32 `json:"n"`
	AtMS   int64  `json:"at"`
	Reason string `json:"r"`
}

func encodeLetter(l *job.HookLetter) string {
	text, err := json.Marshal(letterText{
		Hook: l.Hook, Event: encodeHappening(&l.Happening), Place: placeText(l.Happening.Place), Tries: l.Tries, AtMS: l.AtMS, Reason: l.Reason,
	})
	if err != nil {
		panic("redisstore: " + err.Error()) // texts and numbers can be written
	}
	return string(text)
}

func decodeLetter(shard int, text string) job.HookLetter {
	var t letterText
	if json.Unmarshal([]byte(text), &t) != nil {
		t = letterText{} // somebody else put it there
	}
	return job.HookLetter{
		ID: text, Hook: t.Hook, Happening: decodeHappening(shard, t.Place, t.Event), Tries: t.Tries, AtMS: t.AtMS, Reason: t.Reason,
	}
}

// hookText is a state as it is stored: its numbers, with spaces between them.
func hookText(h job.HookState) string {
	return fmt.Sprintf("%s %d %d %d %d", placeText(h.After), h.Tries, h.FirstMS, h.RetryMS, h.UpdatedMS)
}

func parseHook(text string) (h job.HookState, ok bool) {
	place, rest, _ := strings.Cut(text, " ")
	if h.After, ok = parsePlace(place); !ok {
		return h, false
	}
	n, err := fmt.Sscanf(rest, "%d %d %d %d", &h.Tries, &h.FirstMS, &h.RetryMS, &h.UpdatedMS)
	return h, err == nil && n == 4
}
