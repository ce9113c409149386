package client

import (
	"crypto/rand"
	mathrand "math/rand/v2"
	"strings"

	"github.com/fermata-io/fermata/internal/core/sharding"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// minShardGroup is how many jobs of a batch at most are stored together. To register 32 by one
	// call to Redis costs it a quarter of 32 calls; more would save little, and spread over
	// the shards less evenly.
	minShardGroup = 32
	// idSections is in how many equal parts the ids lie. Where there are as many shards or
	// fewer, a part is in one shard, or in two that are neighbours.
	idSections = 256
)

// assignGroupedIDs gives ids to those jobs of a batch that have none. Where a job is stored
// follows from its id, so that ids by chance would scatter them over all shards, each of
// which takes a call to Redis; of these, 32 at a time lead to the same one.
func assignGroupedIDs(namespace string, requests []*fermatav1.CreateJobRequest) {
	left, section := 0, 0
	for _, q := range requests {
		if q.GetJobId() != "" {
			continue
		}
		if left == 0 {
			left, section = minShardGroup, mathrand.IntN(idSections)
		}
		left--
		q.JobId = makeID(namespace, section)
	}
}

// makeID makes an id by chance, but for its last letters, which lead to a section.
func makeID(namespace string, section int) string {
	for {
		beginning := "job-" + strings.ToLower(rand.Text()[:23]) // 115 random bits
		if id, ok := sharding.Complete(namespace, beginning, section, idSections); ok {
			return id
		}
	}
}
