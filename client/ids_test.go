package client

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestJobsOfABatchAreStoredTogether: those without an id, as many as keep company, are in one
// shard, the next ones in another, and all ids are different.
func TestJobsOfABatchAreStoredTogether(t *testing.T) {
	form := regexp.MustCompile(`^job-[a-z2-7]{26}$`)
	for _, shards := range []int{1, 16, 64, 256} {
		batch := make([]*fermatav1.CreateJobRequest, 65*minShardGroup)
		for i := range batch {
			batch[i] = &fermatav1.CreateJobRequest{}
			if i%65 == 0 {
				batch[i].JobId = "named" // keeps its id
			}
		}
		assignGroupedIDs("tenant-a", batch)
		seen, groups, made := map[string]bool{}, map[int]int{}, 0
		for i, q := range batch {
			id := q.GetJobId()
			if i%65 == 0 {
				if id != "named" {
					t.Fatalf("a job with an id became %s", id)
				}
				continue
			}
			if !form.MatchString(id) || seen[id] {
				t.Fatalf("id %q", id)
			}
			seen[id] = true
			made++
			shard := sharding.ShardOf("tenant-a", id, shards)
			section := shard * min(shards, idSections) / shards // one shard, or four of 256
			groups[section]++
			if groups[section]%minShardGroup != made%minShardGroup {
				t.Fatalf("of %d shards: id %d is in shard %d, apart from its company", shards, made, shard)
			}
		}
		// By chance 64 groups meet nearly all of 16 shards and some 40 of 64.
		if want := min(shards, 12); len(groups) < want {
			t.Errorf("of %d shards %d groups have jobs", shards, len(groups))
		}
	}
}

// TestIDIsKeptOverRetries: a batch without an answer has each job sent again under the id
// that it was sent under before.
func TestIDIsKeptOverRetries(t *testing.T) {
	r, c, release := busy(t)
	r.broken = true
	names := make(chan string, 1)
	go func() {
		j, err := c.CreateJob(t.Context(), "", &Job{})
		if err != nil {
			t.Error(err)
		}
		names <- j.GetName()
	}()
	redistest.Eventually(t, redistest.Patience, "the job is in line", func() bool { return c.createBatcher.line() == 1 })
	release()
	name := <-names
	r.mu.Lock()
	defer r.mu.Unlock()
	id := strings.TrimPrefix(name, "namespaces/default/jobs/")
	if id == "" || r.calls[id] != 1 || len(r.asked) != 1 || r.asked[0] != id {
		t.Errorf("registered as %q; in batches %q, alone %v", name, r.asked, r.calls)
	}
}

func BenchmarkMakeID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		makeID("default", 7)
	}
}
