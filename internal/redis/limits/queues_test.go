package limits

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// queueBed is a keyspace in which queues get settings.
type queueBed struct {
	limitBed
	t    *testing.T
	text []byte // stored settings
}

func newQueueBed(t *testing.T, w limitWorld) queueBed {
	t.Helper()
	text, err := codec.EncodeQueueSettings(job.QueueSettings{Rate: 1})
	if err != nil {
		t.Fatal(err)
	}
	return queueBed{limitBed: w.store(t), t: t, text: text}
}

// fill gives queues of a hundred namespaces settings, as nodes of the previous version do.
func (b queueBed) fill(n int) {
	b.t.Helper()
	var fields []any
	for i := range n {
		fields = append(fields, fmt.Sprintf("old%d/q%d", i%100, i), b.text)
	}
	if err := b.client.HSet(b.t.Context(), queuesKey(b.prefix), fields...).Err(); err != nil {
		b.t.Fatal(err)
	}
	b.keepSum()
}

// keepSum stores how many queues have settings.
func (b queueBed) keepSum() {
	b.t.Helper()
	n, err := b.client.HLen(b.t.Context(), queuesKey(b.prefix)).Result()
	if err == nil {
		err = b.client.HSet(b.t.Context(), queueCountsKey(b.prefix), "#all", n).Err()
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// forget deletes settings as nodes of the previous version do.
func (b queueBed) forget(namespace string, n int) {
	b.t.Helper()
	var fields []string
	for i := range n {
		fields = append(fields, fmt.Sprintf("%s%d/q", namespace, i))
	}
	if err := b.client.HDel(b.t.Context(), queuesKey(b.prefix), fields...).Err(); err != nil {
		b.t.Fatal(err)
	}
	b.keepSum()
}

// put changes the settings of the queue q of a namespace.
func (b queueBed) put(identity, namespace string, s job.QueueSettings) error {
	return b.PutQueueSettings(b.t.Context(), job.QueueKey{Namespace: namespace, Queue: "q"}, s, identity)
}

// take gives queues settings, each in a namespace of its own, until one is refused or there are so many.
func (b queueBed) take(identity, namespace string, most int) (n int, err error) {
	for n < most {
		err = b.put(identity, fmt.Sprint(namespace, n), job.QueueSettings{Burst: 1})
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// owned returns how many queues belong to an identity, by its entries and by its count.
func (b queueBed) owned(identity string) (entries, count int) {
	b.t.Helper()
	owners, err := b.client.HGetAll(b.t.Context(), queueOwnersKey(b.prefix)).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, owner := range owners {
		if owner == digestOf(identity) {
			entries++
		}
	}
	count, _ = b.client.HGet(b.t.Context(), queueOwnedKey(b.prefix), digestOf(identity)).Int()
	return entries, count
}

// letAMinutePass since queues of identities were counted.
func (b queueBed) letAMinutePass() {
	b.t.Helper()
	if err := b.client.HSet(b.t.Context(), queueOwnedKey(b.prefix), "#counted", 1).Err(); err != nil {
		b.t.Fatal(err)
	}
}

// TestAnIdentityHasAQuarterOfTheQueues at most, in whatever namespaces they are, and leaves places to others.
func TestAnIdentityHasAQuarterOfTheQueues(t *testing.T) {
	t.Parallel()
	b := newQueueBed(t, limitWorld{url: redistest.Start(t).URL()})
	n, err := b.take("ann", "staging-", maxQueueSettings)
	if n != maxQueueSettings/4 || !errors.Is(err, job.ErrTooManyQueuesOfIdentity) {
		t.Errorf("one identity gave %d queues settings (%v), want a quarter of %d", n, err, maxQueueSettings)
	}
	if entries, count := b.owned("ann"); entries != n || count != n {
		t.Errorf("%d entries and a count of %d, want %d", entries, count, n)
	}
	for range 100 {
		if err := b.put("ann", "another", job.QueueSettings{Burst: 1}); !errors.Is(err, job.ErrTooManyQueuesOfIdentity) {
			t.Fatalf("one more: %v", err)
		}
	}
	stats, err := b.client.Info(t.Context(), "commandstats").Result()
	if n := commandCalls(t, stats, "hgetall"); err != nil || n > 6 { // each count reads settings and owners
		t.Errorf("refusals read all settings and owners %d times (%v)", n, err)
	}
	if err := b.put("ann", "staging-7", job.QueueSettings{Burst: 9}); err != nil {
		t.Errorf("settings of a queue that has some: %v", err)
	}
	// A second identity has a quarter of what is left. Nobody has taken it from the first one.
	if n, err := b.take("bob", "bobs-", maxQueueSettings); n != maxQueueSettings*3/4/4 {
		t.Errorf("another identity gave %d queues settings (%v)", n, err)
	}
	// Settings of others do not count when they are changed, and places are returned with the settings.
	for range 2 { // the second time there is nothing to do
		if err := b.put("root", "staging-7", job.QueueSettings{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, count := b.owned("ann"); count != n-1 {
		t.Errorf("a count of %d after one was deleted, want %d", count, n-1)
	}
	if n, err := b.take("", "all-", 2000); err != nil {
		t.Errorf("a caller without a share gave %d queues settings: %v", n, err)
	}
}

// TestIdentitiesOfDeletedSettingsDoNotCount: nodes of older versions delete settings, and know of no owner.
func TestIdentitiesOfDeletedSettingsDoNotCount(t *testing.T) {
	t.Parallel()
	b := newQueueBed(t, limitWorld{url: redistest.Start(t).URL()})
	b.fill(9000)
	if n, err := b.take("ann", "staging-", 1000); n != 250 || !errors.Is(err, job.ErrTooManyQueuesOfIdentity) {
		t.Fatalf("%d queues of 1,000 that were free: %v", n, err)
	}
	b.forget("staging-", 200)
	b.fill(9200)
	if err := b.put("ann", "more", job.QueueSettings{Burst: 1}); !errors.Is(err, job.ErrTooManyQueuesOfIdentity) {
		t.Errorf("within the minute: %v", err)
	}
	b.letAMinutePass()
	if err := b.put("ann", "more", job.QueueSettings{Burst: 1}); err != nil {
		t.Errorf("after it: %v", err)
	}
	if entries, count := b.owned("ann"); entries != 51 || count != 51 {
		t.Errorf("%d entries and a count of %d are left, want 51", entries, count)
	}
	// Whoever gives settings next owns them, and nobody if they have no share.
	b.forget("staging-20", 1) // 200
	b.forget("staging-21", 1) // 210
	if err := errors.Join(b.put("bob", "staging-200", job.QueueSettings{Burst: 1}),
		b.put("", "staging-210", job.QueueSettings{Burst: 1})); err != nil {
		t.Fatal(err)
	}
	_, anns := b.owned("ann")
	if _, bobs := b.owned("bob"); anns != 49 || bobs != 1 {
		t.Errorf("counts are %d and %d, want 49 and 1", anns, bobs)
	}
}

// TestOwnersOfDeletedSettingsAreBounded: while nodes of older versions delete what others store, no more owners are
// kept than there may be queues with settings.
func TestOwnersOfDeletedSettingsAreBounded(t *testing.T) {
	t.Parallel()
	b := newQueueBed(t, limitWorld{url: redistest.Start(t).URL()})
	ctx := t.Context()
	var fields []any
	for i := range maxQueueSettings {
		fields = append(fields, fmt.Sprintf("gone%d/q", i), digestOf("ann"))
	}
	if err := b.client.HSet(ctx, queueOwnersKey(b.prefix), fields...).Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.put("bob", "n", job.QueueSettings{Burst: 1}); err != nil {
		t.Fatal(err)
	}
	if n, err := b.client.HLen(ctx, queueOwnersKey(b.prefix)).Result(); err != nil || n != 1 {
		t.Errorf("%d owners are left (%v), want 1", n, err)
	}
}

// TestTheLastPlacesAreForPauses of queues.
func TestTheLastPlacesAreForPauses(t *testing.T) {
	t.Parallel()
	b := newQueueBed(t, limitWorld{url: redistest.Start(t).URL()})
	reserve := maxQueueSettings / 64
	b.fill(maxQueueSettings - reserve)
	err := b.put("", "a", job.QueueSettings{Burst: 1})
	if !errors.Is(err, job.ErrTooManyQueues) || errors.Is(err, job.ErrTooManyQueuesOfNamespace) {
		t.Errorf("a limit in the reserve: %v", err)
	}
	paused := 0
	for b.put("ann", fmt.Sprint("n", paused), job.QueueSettings{Paused: true}) == nil {
		paused++
	}
	if paused != reserve/4 {
		t.Errorf("one identity paused %d queues, want a quarter of %d", paused, reserve)
	}
	for _, identity := range []string{"bob", ""} {
		if err := b.put(identity, "of-"+identity, job.QueueSettings{Paused: true}); err != nil {
			t.Errorf("a pause by %q: %v", identity, err)
		}
	}
}

// BenchmarkPutQueueSettings of new queues, and deletes them, in a keyspace where so many queues have settings.
func BenchmarkPutQueueSettings(b *testing.B) {
	for _, others := range []int{0, 9000} {
		b.Run(fmt.Sprint("others=", others), func(b *testing.B) {
			s, ctx := limitWorld{url: redistest.Start(b).URL()}.store(b), context.Background()
			text, err := codec.EncodeQueueSettings(job.QueueSettings{Rate: 1})
			if err != nil {
				b.Fatal(err)
			}
			for i := range others {
				s.client.HSet(ctx, queuesKey(s.prefix), fmt.Sprintf("n%d/q%d", i%100, i), text)
			}
			q := job.QueueKey{Namespace: "n", Queue: "q"}
			for b.Loop() {
				for _, settings := range []job.QueueSettings{{Burst: 1}, {}} {
					if err := s.PutQueueSettings(ctx, q, settings, "ann"); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
