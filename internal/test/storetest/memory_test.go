package storetest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// BenchmarkMemory measures what a scheduled job takes of Redis, by part: recurring, all
// policies as usual, a payload of 200 bytes and an id of 24, no history. Run it with
// -benchtime 1x.
func BenchmarkMemory(b *testing.B) {
	for _, namespace := range []string{"default", "mail"} {
		b.Run("namespace="+namespace, func(b *testing.B) {
			for b.Loop() {
				benchmarkMemory(b, namespace)
			}
		})
	}
}

func benchmarkMemory(b *testing.B, namespace string) {
	const jobs, batch = 100_000, 200
	client := dialRedis(b, redistest.Start(b).URL())
	w := storetest.NewWorld(b, client, func(o *redisstore.Options) { o.Shards = 8 })
	w.Damaged() // an audit would take long
	before := usedMemory(b, client)
	for from := 0; from < jobs; from += batch {
		var records []job.Record
		for i := range batch {
			records = append(records, w.Record(plainJob(namespace, from+i, storetest.Start)))
		}
		if r := storetest.Create(b.Context(), w.Store, from/batch%8, records); r.Err != nil {
			b.Fatal(r.Err)
		}
	}
	b.ReportMetric((usedMemory(b, client)-before)/jobs, "bytes/job")
	for name, part := range map[string]string{"lane": ":l:" + namespace + "/default/5", "state": ":st", "definition": ":def"} {
		sum := 0.0
		for _, key := range keysLike(b, client, part) {
			used, err := client.MemoryUsage(b.Context(), key, 0).Result()
			if err != nil {
				b.Fatal(err)
			}
			sum += float64(used)
		}
		b.ReportMetric(sum/jobs, name+"-bytes/job")
	}
}

func plainJob(namespace string, i int, now int64) job.Definition {
	d := job.WithDefaults(job.Definition{
		Key: job.Key{Namespace: namespace, ID: fmt.Sprintf("job-%020d", i)}, Priority: job.DefaultPriority, Handler: "http",
		Payload:  []byte(strings.Repeat("x", 200)),
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Hour},
	})
	d.Generation, d.Revision, d.AnchorMS, d.CreatedMS, d.UpdatedMS = 1, 1, unixtime.Milli(now), unixtime.Milli(now), unixtime.Milli(now)
	return d
}

func usedMemory(t testing.TB, client redis.UniversalClient) float64 {
	t.Helper()
	text, err := client.Info(context.Background(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	var used float64
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "used_memory:"); ok {
			if _, err := fmt.Sscan(value, &used); err != nil {
				t.Fatal(err)
			}
		}
	}
	return used
}

func keysLike(t testing.TB, client redis.UniversalClient, suffix string) []string {
	t.Helper()
	keys, err := client.Keys(context.Background(), "*"+suffix).Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestPlainJobsStaySmall bounds the texts of a plain job: with 4 bytes of overhead its
// state is in the allocator's class of 64 bytes, and its definition in that of 256.
func TestPlainJobsStaySmall(t *testing.T) {
	w := storetest.NewWorld(t, redistest.Start(t).Client(), func(o *redisstore.Options) { o.Shards = 1 })
	d := plainJob("default", 1, w.Clock.Load())
	w.Add(d)
	for key, most := range map[string]int{"st": 60, "def": 252} {
		text, err := w.Client.HGet(t.Context(), w.Key(0, key), string(d.Record())).Result()
		if err != nil || len(text) > most {
			t.Errorf("%s takes %d bytes (%v), want at most %d: %q", key, len(text), err, most, text)
		}
	}
}

// TestLanesAreReadWithoutScript: while the clock is known, due times are read without a
// script, and what another process has changed is seen all the same.
func TestLanesAreReadWithoutScript(t *testing.T) {
	client := redistest.Start(t).Client()
	realTime := func(o *redisstore.Options) { o.Virtual = nil }
	w := storetest.NewWorld(t, client, realTime)
	other := w.Open(realTime)
	scripts := func() int64 {
		t.Helper()
		text, err := client.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ = strings.Cut(text, "cmdstat_evalsha:calls=")
		var n int64
		if _, err := fmt.Sscan(text[:strings.IndexByte(text, ',')], &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	w.Clock.Store(time.Now().UnixMilli())
	d := storetest.Once(w.InShard(0, 1)[0], 0)
	d.Schedule.At = time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
	if r := storetest.Create(t.Context(), other, 0, []job.Record{w.Record(d)}); r.Err != nil {
		t.Fatal(r.Err)
	}
	before := scripts()
	heads, err := w.Store.Lanes(t.Context(), []int{0, 1})
	if err != nil || len(heads[0]) != 1 || heads[0][0] != (job.LaneHead{Lane: storetest.Lane(), DueMS: unixtime.MilliOf(d.Schedule.At)}) || len(heads[1]) != 0 {
		t.Errorf("lanes %+v (%v), want one due at %v", heads, err, d.Schedule.At)
	}
	if n := scripts() - before; n != 0 {
		t.Errorf("%d scripts were called", n)
	}
}
