package redisstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// WebhookProgress reads how far webhooks are with shards, by shard and name. With an error come
// those shards that could be read.
func (s *Store) WebhookProgress(ctx context.Context, shards []int) (map[int]map[string]job.WebhookProgress, error) {
	ops := make([]*runner.Op, len(shards))
	for i, shard := range shards {
		key := s.shards[shard].Hooks
		ops[i] = runner.NewCommand("webhooks", key, "hgetall", key)
	}
	err := s.runner.Run(ctx, ops...)
	out := make(map[int]map[string]job.WebhookProgress, len(shards))
	for i, o := range ops {
		if o.Err != nil {
			continue
		}
		states := map[string]job.WebhookProgress{}
		for name, text := range o.Reply.Hash() {
			if state, ok := parseHook(text); ok {
				states[name] = state
			}
		}
		out[shards[i]] = states
	}
	return out, err
}

// SaveWebhookProgress stores how far a webhook is with a shard and, in the same step, the event
// that it gave up on, if there is one; it returns how many older ones were removed for that,
// unless an earlier answer was lost. It answers job.ErrNotHolder if the shard's lock has
// another value.
func (s *Store) SaveWebhookProgress(ctx context.Context, shard int, lockValue, hook string, state job.WebhookProgress,
	letter *job.UndeliveredEvent) (evicted int, err error) {
	keys := s.shards[shard]
	names, argv := []string{keys.Lock, keys.Hooks}, []any{lockValue, hook, hookText(state), maxUndelivered}
	if letter != nil {
		names, argv = append(names, keys.UndeliveredKey(hook)), append(argv, int64(letter.AtMS), encodeLetter(letter))
	}
	o := runner.NewScriptCall(s.scripts.hook, runner.NoShard, names, argv)
	err = s.runner.Run(ctx, o)
	if o.Reply.IntAt(0) == 2 { // whether replicas confirmed that nothing was stored or not
		return 0, fmt.Errorf("webhook %s: %w", hook, job.ErrNotHolder)
	}
	return int(o.Reply.IntAt(1)), err
}

// DeleteWebhooks deletes what is stored of webhooks that are no more. What they gave up on
// goes first: it is found by their states.
func (s *Store) DeleteWebhooks(ctx context.Context, shard int, hooks []string) error {
	keys := s.shards[shard]
	letters, states := []any{"del"}, []any{"hdel", keys.Hooks}
	for _, h := range hooks {
		letters, states = append(letters, keys.UndeliveredKey(h)), append(states, h)
	}
	if err := s.runner.Run(ctx, runner.NewCommand("webhooks", keys.Hooks, letters...)); err != nil {
		return err
	}
	return s.runner.Run(ctx, runner.NewCommand("webhooks", keys.Hooks, states...))
}

// hookText is a state as it is stored: its numbers, with spaces between them.
func hookText(h job.WebhookProgress) string {
	return fmt.Sprintf("%s %d %d %d %d", placeText(h.After), h.Attempts, h.FirstMS, h.RetryMS, h.UpdatedMS)
}

func parseHook(text string) (h job.WebhookProgress, ok bool) {
	place, rest, _ := strings.Cut(text, " ")
	h.After, ok = parsePlace(place)
	if !ok {
		return h, false
	}
	n, err := fmt.Sscanf(rest, "%d %d %d %d", &h.Attempts, &h.FirstMS, &h.RetryMS, &h.UpdatedMS)
	return h, err == nil && n == 4
}
