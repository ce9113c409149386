package client

import (
	"crypto/rand"
	mathrand "math/rand/v2"

	"github.com/fermata-io/fermata/internal/core/sharding"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// minShardGroup is how many jobs of a batch are stored together. Registering 32 by one Redis call costs a
	// quarter of 32 calls. Larger groups save little and are spread over the shards less evenly.
	minShardGroup = 32
	// idSections is the number of equal sections of the id space. With as many shards or fewer, a section is in
	// one shard, or in two adjacent ones; with 256 shards it is in four. An id takes as many tries as there are
	// sections.
	idSections = 64
)

// groupedIDs makes ids for the jobs of a batch that have none. The id decides the shard of a job, so random ids
// would scatter a batch over all shards, with one call to Redis each. These ids place 32 jobs at a time on one shard.
type groupedIDs struct {
	namespace     string
	left, section int // of the present group
}

func (g *groupedIDs) next() string {
	if g.left == 0 {
		g.left, g.section = minShardGroup, mathrand.IntN(idSections)
	}
	g.left--
	return makeID(g.namespace, g.section)
}

// assignGroupedIDs assigns ids to the jobs of a batch that have none.
func assignGroupedIDs(namespace string, requests []*fermatav1.CreateJobRequest) {
	ids := groupedIDs{namespace: namespace}
	for _, q := range requests {
		if q.GetJobId() == "" {
			q.JobId = ids.next()
		}
	}
}

// idLetters are those of [rand.Text] in lower case.
const idLetters = "abcdefghijklmnopqrstuvwxyz234567"

// makeID returns a random id whose last letters place it in a section.
func makeID(namespace string, section int) string {
	for {
		var random [23]byte // each byte gives 5 bits
		rand.Read(random[:])
		beginning := append(make([]byte, 0, 27), "job-"...)
		for _, b := range random {
			beginning = append(beginning, idLetters[b%32])
		}
		if id, ok := sharding.IDInShard(namespace, string(beginning), section, idSections); ok {
			return id
		}
	}
}
