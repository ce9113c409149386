package limits

import (
	"context"
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

// PutQueueSettings replaces the settings of a queue; the zero value deletes them.
// No more than 10,000 queues may have settings, and of a namespace no more than are free:
// job.ErrTooManyQueues.
func (s *Store) PutQueueSettings(ctx context.Context, q job.QueueKey, settings job.QueueSettings) error {
	return s.putQueueSettings(ctx, q, settings, "", "")
}

// SwapQueueSettings is PutQueueSettings on the condition that the settings are still
// old: job.ErrSettingsChanged.
func (s *Store) SwapQueueSettings(ctx context.Context, q job.QueueKey, old, settings job.QueueSettings) error {
	expected, err := codec.EncodeQueueSettings(old)
	if err != nil {
		return err
	}
	return s.putQueueSettings(ctx, q, settings, "1", string(expected))
}

func (s *Store) putQueueSettings(ctx context.Context, q job.QueueKey, settings job.QueueSettings,
	swap, expected string) error {
	if q.Namespace == "" || q.Queue == "" || strings.Contains(q.Namespace, "/") {
		return fmt.Errorf("settings of queue %q in namespace %q: not the name of a queue", q.Queue, q.Namespace)
	}
	value, err := codec.EncodeQueueSettings(settings)
	if err != nil {
		return err
	}
	put := runner.NewScriptCall(s.scripts.queues, runner.NoShard,
		[]string{queuesKey(s.prefix), queueCountsKey(s.prefix)},
		[]any{q.Namespace + "/" + q.Queue, value, maxQueueSettings, swap, expected})
	if err := s.runner.Run(ctx, put); err != nil {
		return err
	}
	switch put.Reply.IntAt(0) {
	case 0:
		return nil
	case 2:
		return fmt.Errorf("settings of queue %s in namespace %s: %w", q.Queue, q.Namespace, job.ErrSettingsChanged)
	}
	return fmt.Errorf("settings of queue %s in namespace %s: %w", q.Queue, q.Namespace, job.ErrTooManyQueues)
}
