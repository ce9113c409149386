package audittrail

import (
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/core/job"
)

func publicKeys(keys ...job.ChainKey) map[string]ed25519.PublicKey {
	out := map[string]ed25519.PublicKey{}
	for _, key := range keys {
		out[key.ID] = key.Key.Public().(ed25519.PublicKey)
	}
	return out
}

// forgeFrom changes the records from one on and links them again without signatures, as a writer without a key can, and
// adds one more, so that the end is after all that a node has seen. sign may sign that one.
func (m *memory) forgeFrom(i int, sign func(r *job.TrailRecord)) {
	r := slices.Clone(m.records)
	r[i].Identity = "mallory"
	added := r[len(r)-1]
	added.Seq, added.ID = added.Seq+1, added.ID+"1"
	r = append(r, added)
	for ; i < len(r); i++ {
		r[i].AtMS, r[i].KeyID, r[i].Signature = job.TrailTime(r[i].ID), "", nil
		if i > 0 {
			r[i].Prev = r[i-1].Hash
		}
		r[i].Hash = r[i].ChainHash()
	}
	if sign != nil {
		sign(&r[len(r)-1])
	}
	m.records = r
	m.endAt(r[len(r)-1].Seq)
}

// endAt stores an end with the hash of the newest record.
func (m *memory) endAt(seq int64) {
	m.head = job.TrailHead{Seq: seq, Hash: m.records[len(m.records)-1].Hash, Bytes: 100 * seq, Raw: "by hand"}
}

// TestNodesSignNoForgedRecords: the next records of a node do not vouch for what somebody without its keys has stored,
// neither if the node has seen what was there before, nor if it has just started.
func TestNodesSignNoForgedRecords(t *testing.T) {
	key := testKey("k1", 1)
	for what, forge := range map[string]func(m *memory){
		"some, without signatures": func(m *memory) { m.forgeFrom(3, nil) },
		"all, without signatures":  func(m *memory) { m.forgeFrom(0, nil) },
		"signed by another key of the name": func(m *memory) {
			m.forgeFrom(3, func(r *job.TrailRecord) {
				r.KeyID, r.Signature = "k1", ed25519.Sign(testKey("k1", 9).Key, job.SignedText(r.Hash))
			})
		},
		"signed by an unknown key": func(m *memory) {
			m.forgeFrom(3, func(r *job.TrailRecord) {
				r.KeyID, r.Signature = "k9", ed25519.Sign(testKey("k9", 9).Key, job.SignedText(r.Hash))
			})
		},
		"with the signature of another record": func(m *memory) {
			genuine := m.records[4]
			m.forgeFrom(3, func(r *job.TrailRecord) {
				r.KeyID, r.Signature = genuine.KeyID, genuine.Signature
			})
		},
		"with hash and signature of another record": func(m *memory) {
			genuine := m.records[4]
			m.forgeFrom(3, func(r *job.TrailRecord) {
				r.Hash, r.KeyID, r.Signature = genuine.Hash, genuine.KeyID, genuine.Signature
			})
		},
		"before a genuine record": func(m *memory) {
			genuine := m.records[4]
			m.forgeFrom(2, nil)
			genuine.ID += "9"
			m.records = append(m.records, genuine)
		},
		"the end alone": func(m *memory) { m.endAt(9) },
	} {
		for _, started := range []bool{true, false} {
			store := &memory{}
			chainOf(t, store, 1, 5, &key)
			node := recorder(t, Options{Store: store, Keys: keysOf(&key)})
			if started {
				node.appendRecords([]job.TrailRecord{{Resource: "honest"}})
			}
			forge(store)
			for range 2 {
				node.checkChain()
				node.appendRecords([]job.TrailRecord{{Resource: "later"}})
			}
			if len(check(store.records, publicKeys(key))) == 0 {
				t.Errorf("%s, started before: %v: the chain holds", what, started)
			}
			if n := testutil.ToFloat64(node.gauges.unverifiedEnds); n != 1 || testutil.ToFloat64(node.gauges.setBacks) != 0 {
				t.Errorf("%s, started before: %v: counted %v times", what, started, n)
			}
			last := store.records[len(store.records)-1]
			if other := recorder(t, Options{Store: store, Keys: keysOf(&key)}); last.Resource == "later" {
				other.checkChain()
				if testutil.ToFloat64(other.gauges.unverifiedEnds) != 0 {
					t.Errorf("%s: the end that the node has made is not taken", what)
				}
				other.Stop(context.Background())
			}
			node.Stop(context.Background())
		}
	}
}

// TestUnsignedRecordsAreNotCovered: the first signature does not cover what was stored before it, and the sequences go
// on. From the first signed record on the chain holds.
func TestUnsignedRecordsAreNotCovered(t *testing.T) {
	store, key := &memory{}, testKey("k1", 1)
	chainOf(t, store, 2, 5, nil)
	chainOf(t, store, 2, 5, &key)
	first := store.records[10]
	if first.Seq != 11 || len(first.Prev) != 0 {
		t.Errorf("the first signed one has sequence %d and the hash %x", first.Seq, first.Prev)
	}
	breaks := check(store.records, publicKeys(key))
	if !slices.Equal(faults(breaks), []job.ChainFault{job.ChainUnlinked}) || breaks[0].Seq != 11 {
		t.Errorf("%+v", breaks)
	}
	if breaks := check(store.records[10:], publicKeys(key)); len(breaks) > 0 || store.head.Seq != 20 {
		t.Errorf("from the first signed one on: %+v, end %d", breaks, store.head.Seq)
	}
}

// TestEndsOfNodesWithAKnownKeyAreTaken: while a key is replaced in the two documented steps, after a lost reply, behind
// nothing but the newest record, and while another node writes.
func TestEndsOfNodesWithAKnownKeyAreTaken(t *testing.T) {
	one, two := testKey("k1", 1), testKey("k2", 2)
	store := &memory{}
	var nodes []*Recorder
	write := func(nodes ...*Recorder) {
		for range 2 {
			for _, node := range nodes {
				node.appendRecords([]job.TrailRecord{{}, {}})
			}
		}
	}
	start := func(keys ...*job.ChainKey) *Recorder {
		node := recorder(t, Options{Store: store, Keys: keysOf(keys...)})
		nodes = append(nodes, node)
		return node
	}
	write(start(&one), start(&one, &two))
	write(start(&one, &two), start(&two, &one))
	write(start(&two, &one), start(&two))
	store.lost = errors.New("no answer")
	node := nodes[len(nodes)-1]
	state, _ := store.TrailState(t.Context())
	var tried appendAttempt
	for range 2 {
		_, _ = node.tryAppend(t.Context(), []job.TrailRecord{{Resource: "once"}}, &tried)
	}
	if store.head.Seq != state.Head.Seq+1 || node.chain.seen.Seq != store.head.Seq {
		t.Errorf("the end is %d, seen %d, after %d", store.head.Seq, node.chain.seen.Seq, state.Head.Seq)
	}
	write(nodes[2:]...)
	if breaks := check(store.records, publicKeys(one, two)); len(breaks) > 0 {
		t.Errorf("%+v", breaks)
	}
	store.records = store.records[len(store.records)-1:]
	write(start(&two))
	for i, node := range nodes {
		if n := testutil.ToFloat64(node.gauges.unverifiedEnds) + testutil.ToFloat64(node.gauges.setBacks); n != 0 {
			t.Errorf("node %d has counted %v ends", i, n)
		}
		node.Stop(context.Background())
	}
}

// slicedReads is a store in which another node writes between the reads of the end and of the newest record.
type slicedReads struct {
	*memory
	write func()
}

func (s *slicedReads) TrailState(ctx context.Context) (job.TrailState, error) {
	before, err := s.memory.TrailState(ctx)
	if s.write != nil {
		write := s.write
		s.write = nil
		write()
	}
	after, _ := s.memory.TrailState(ctx)
	before.Newest = after.Newest
	return before, err
}

// TestWritesBetweenReadsAreNoFault: neither for a check nor for a write.
func TestWritesBetweenReadsAreNoFault(t *testing.T) {
	key := testKey("k1", 1)
	store := &slicedReads{memory: &memory{}}
	node := recorder(t, Options{Store: store, Keys: keysOf(&key)})
	defer node.Stop(context.Background())
	for _, act := range []func(){node.checkChain, func() { node.appendRecords([]job.TrailRecord{{}}) }} {
		chainOf(t, store.memory, 1, 2, &key)
		store.write = func() { chainOf(t, store.memory, 1, 2, &key) }
		act()
	}
	if n := testutil.ToFloat64(node.gauges.unverifiedEnds); n != 0 || len(check(store.records, publicKeys(key))) > 0 {
		t.Errorf("counted %v ends", n)
	}
}

// TestNodesWithoutAKeyAreNotCovered: a node with a key does not sign what they write, and they take its ends.
func TestNodesWithoutAKeyAreNotCovered(t *testing.T) {
	store, key := &memory{}, testKey("k1", 1)
	with, without := recorder(t, Options{Store: store, Keys: keysOf(&key)}), recorder(t, Options{Store: store})
	for range 2 {
		for _, node := range []*Recorder{with, without} {
			node.appendRecords([]job.TrailRecord{{}})
		}
	}
	with.appendRecords([]job.TrailRecord{{}})
	var at []int64
	for _, b := range check(store.records, publicKeys(key)) {
		at = append(at, b.Seq)
	}
	if !slices.Equal(at, []int64{3, 5, 5}) { // the last record is not signed behind a break
		t.Errorf("the chain breaks at %v", at)
	}
	if n := testutil.ToFloat64(with.gauges.unverifiedEnds); n != 2 || testutil.ToFloat64(without.gauges.setBacks) != 0 {
		t.Errorf("counted %v ends", n)
	}
	with.Stop(context.Background())
	without.Stop(context.Background())
}
