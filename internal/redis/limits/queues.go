package limits

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// maxQueueSettings is how many queues may have settings: every node reads all of
// them every second.
const maxQueueSettings = 10_000

// queuesKey is the hash of queue settings, in the slot of the keyspace's own.
func queuesKey(prefix string) string { return runner.KeyspaceKey(prefix) + ":queues" }

// queueCountsKey is the hash of how many queues of each namespace have settings.
func queueCountsKey(prefix string) string { return queuesKey(prefix) + ":counts" }

// queueOwnersKey is the hash of the identities that gave queues their settings.
func queueOwnersKey(prefix string) string { return queuesKey(prefix) + ":owners" }

// queueOwnedKey is the hash of how many queues each identity gave settings.
func queueOwnedKey(prefix string) string { return queuesKey(prefix) + ":owned" }

// QueueSettings reads the settings of all queues that have any. What cannot be read
// is logged, counted and left out.
func (s *Store) QueueSettings(ctx context.Context) (map[job.QueueKey]job.QueueSettings, error) {
	key := queuesKey(s.prefix)
	read := runner.NewCommand("queue settings", key, "hgetall", key)
	if err := s.runner.Run(ctx, read); err != nil {
		return nil, err
	}
	out := map[job.QueueKey]job.QueueSettings{}
	for field, text := range read.Reply.Hash() {
		namespace, queue, ok := strings.Cut(field, "/")
		settings, err := codec.DecodeQueueSettings(text)
		if err == nil && !ok {
			err = fmt.Errorf("%w: name of a queue", codec.ErrCorrupt)
		}
		if err != nil {
			s.runner.ReportCorrupt(runner.NoShard, "queue settings", err, field)
			continue
		}
		out[job.QueueKey{Namespace: namespace, Queue: queue}] = settings
	}
	return out, nil
}

// ReadQueueSettings reads the settings of one queue, zero where it has none. It costs the
// same however many other queues have settings. What cannot be read is logged, counted and
// taken for none.
func (s *Store) ReadQueueSettings(ctx context.Context, q job.QueueKey) (job.QueueSettings, error) {
	key, field := queuesKey(s.prefix), q.Namespace+"/"+q.Queue
	read := runner.NewCommand("queue settings", key, "hmget", key, field)
	if err := s.runner.Run(ctx, read); err != nil || !read.Reply.HasTextAt(0) {
		return job.QueueSettings{}, err
	}
	settings, err := codec.DecodeQueueSettings(read.Reply.TextAt(0))
	if err != nil {
		s.runner.ReportCorrupt(runner.NoShard, "queue settings", err, field)
		return job.QueueSettings{}, nil
	}
	return settings, nil
}

// PutQueueSettings replaces the settings of a queue; the zero value deletes them. New settings are part of the share of
// an identity; "": of none. No more than 10,000 queues may have settings, of a namespace no more than are free, and of
// an identity no more than a third of what is free: job.ErrTooManyQueues, or an error that wraps it. The last 64th is
// for settings that pause.
func (s *Store) PutQueueSettings(ctx context.Context, q job.QueueKey, settings job.QueueSettings,
	identity string) error {
	return s.putQueueSettings(ctx, q, settings, identity, "", "")
}

// SwapQueueSettings is PutQueueSettings on the condition that the settings are still
// old: job.ErrSettingsChanged.
func (s *Store) SwapQueueSettings(ctx context.Context, q job.QueueKey, old, settings job.QueueSettings,
	identity string) error {
	expected, err := codec.EncodeQueueSettings(old)
	if err != nil {
		return err
	}
	return s.putQueueSettings(ctx, q, settings, identity, "1", string(expected))
}

// queueRefusals are the errors by the code that the script replies.
var queueRefusals = map[int64]error{
	1: job.ErrTooManyQueues, 2: job.ErrSettingsChanged, 3: job.ErrTooManyQueuesOfNamespace,
	4: job.ErrTooManyQueuesOfIdentity,
}

func (s *Store) putQueueSettings(ctx context.Context, q job.QueueKey, settings job.QueueSettings,
	identity, swap, expected string) error {
	if q.Namespace == "" || q.Queue == "" || strings.Contains(q.Namespace, "/") {
		return fmt.Errorf("settings of queue %q in namespace %q: not the name of a queue", q.Queue, q.Namespace)
	}
	value, err := codec.EncodeQueueSettings(settings)
	if err != nil {
		return err
	}
	pauses := ""
	if settings.Paused {
		pauses = "1"
	}
	put := runner.NewScriptCall(s.scripts.queues, runner.NoShard,
		[]string{queuesKey(s.prefix), queueCountsKey(s.prefix), queueOwnersKey(s.prefix), queueOwnedKey(s.prefix)},
		[]any{q.Namespace + "/" + q.Queue, value, maxQueueSettings, swap, expected, digestOf(identity), pauses})
	if err := s.runner.Run(ctx, put); err != nil {
		return err
	}
	if refusal := queueRefusals[put.Reply.IntAt(0)]; refusal != nil {
		return fmt.Errorf("settings of queue %s in namespace %s: %w", q.Queue, q.Namespace, refusal)
	}
	return nil
}

// digestOf is a name of an identity that has the same length for all; "" for none.
func digestOf(identity string) string {
	if identity == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(identity))
	return hex.EncodeToString(sum[:16])
}
