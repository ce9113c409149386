package audittrail

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/test/keytest"
)

// check runs a chain through a check.
func check(records []job.TrailRecord, keys map[string]ed25519.PublicKey) (breaks []job.ChainBreak) {
	c := job.ChainCheck{Keys: keys}
	for _, r := range records {
		if b := c.Next(r); b != nil {
			breaks = append(breaks, *b)
		}
	}
	if b := c.End(); b != nil {
		breaks = append(breaks, *b)
	}
	return breaks
}

func faults(breaks []job.ChainBreak) (out []job.ChainFault) {
	for _, b := range breaks {
		out = append(out, b.Fault)
	}
	return out
}

func testKey(id string, b byte) job.ChainKey {
	seed := keytest.Key(string(rune('a' + b)))
	return job.ChainKey{ID: id, Key: ed25519.NewKeyFromSeed(seed)}
}

// keysOf returns what gives a node these keys. The first one signs; nil: the node has none.
func keysOf(keys ...*job.ChainKey) func() []job.ChainKey {
	return func() (out []job.ChainKey) {
		for _, key := range keys {
			if key != nil {
				out = append(out, *key)
			}
		}
		return out
	}
}

// chainOf has records written by several nodes at the same time.
func chainOf(t *testing.T, store *memory, nodes, each int, key *job.ChainKey) {
	t.Helper()
	var wg sync.WaitGroup
	for n := range nodes {
		r := recorder(t, Options{Store: store, Keys: keysOf(key)})
		wg.Go(func() {
			for i := range each {
				r.Record(job.TrailRecord{Identity: "alice", Node: fmt.Sprint(n), Resource: fmt.Sprintf("namespaces/n/jobs/%d", i), Names: []string{"a\nb", "", "c"}}, job.TrailPlace{})
			}
			r.Stop(context.Background())
		})
	}
	wg.Wait()
}

// TestRecordsOfAllNodesFormOneChain: whichever node writes, each record has the hash of the one before.
func TestRecordsOfAllNodesFormOneChain(t *testing.T) {
	store, key := &memory{}, testKey("k1", 1)
	chainOf(t, store, 5, 100, &key)
	public := map[string]ed25519.PublicKey{"k1": key.Key.Public().(ed25519.PublicKey)}
	if breaks := check(store.records, public); len(breaks) > 0 || len(store.records) != 500 || store.head.Seq != 500 {
		t.Errorf("%d records, end %d: %+v", len(store.records), store.head.Seq, breaks)
	}
	for i, r := range store.records {
		if r.Seq != int64(i+1) || i > 0 && job.CompareTrailIDs(store.records[i-1].ID, r.ID) >= 0 {
			t.Fatalf("record %d has sequence %d and id %s", i, r.Seq, r.ID)
		}
	}
}

// TestEveryTamperingIsDetected: changes by an attacker who can write to the store, and the break that shows
// each.
func TestEveryTamperingIsDetected(t *testing.T) {
	key := testKey("k1", 1)
	public := map[string]ed25519.PublicKey{"k1": key.Key.Public().(ed25519.PublicKey)}
	// again relinks records from one on, as an attacker without a key can.
	again := func(records []job.TrailRecord, from int) []job.TrailRecord {
		for i := from; i < len(records); i++ {
			if i > 0 {
				records[i].Prev, records[i].Seq = records[i-1].Hash, records[i-1].Seq+1
			}
			records[i].Hash = records[i].ChainHash()
		}
		return records
	}
	for what, c := range map[string]struct {
		change        func([]job.TrailRecord) []job.TrailRecord
		plain, signed []job.ChainFault
	}{
		"nothing":        {func(r []job.TrailRecord) []job.TrailRecord { return r }, nil, nil},
		"the oldest go":  {func(r []job.TrailRecord) []job.TrailRecord { return r[3:] }, nil, nil},
		"one is changed": {func(r []job.TrailRecord) []job.TrailRecord { r[4].Identity = "bob"; return r }, []job.ChainFault{job.ChainChanged}, []job.ChainFault{job.ChainChanged}},
		"its time is":    {func(r []job.TrailRecord) []job.TrailRecord { r[4].ID = "2-0"; return r }, []job.ChainFault{job.ChainChanged}, []job.ChainFault{job.ChainChanged}},
		"the time of its line is": {func(r []job.TrailRecord) []job.TrailRecord { r[4].AtMS--; return r },
			[]job.ChainFault{job.ChainChanged}, []job.ChainFault{job.ChainChanged}},
		"two are put before the first": {func(r []job.TrailRecord) []job.TrailRecord {
			return append([]job.TrailRecord{{ID: "0-1", Identity: "bob"}, {ID: "0-2", Identity: "bob"}}, r...)
		}, nil, []job.ChainFault{job.ChainUnchained, job.ChainUnchained}},
		"one is removed": {func(r []job.TrailRecord) []job.TrailRecord { return slices.Delete(r, 4, 5) }, []job.ChainFault{job.ChainMissing}, []job.ChainFault{job.ChainMissing}},
		"two change places": {func(r []job.TrailRecord) []job.TrailRecord { r[4], r[5] = r[5], r[4]; return r },
			[]job.ChainFault{job.ChainMissing, job.ChainRepeated, job.ChainMissing}, []job.ChainFault{job.ChainMissing, job.ChainRepeated, job.ChainMissing}},
		"one is put in": {func(r []job.TrailRecord) []job.TrailRecord {
			return slices.Insert(r, 4, job.TrailRecord{ID: "4-5", Identity: "bob"})
		},
			[]job.ChainFault{job.ChainUnchained}, []job.ChainFault{job.ChainUnchained}},
		"one is there twice": {func(r []job.TrailRecord) []job.TrailRecord { return slices.Insert(r, 4, r[4]) }, []job.ChainFault{job.ChainRepeated}, []job.ChainFault{job.ChainRepeated}},
		"one is changed and its hash made anew": {func(r []job.TrailRecord) []job.TrailRecord {
			r[4].Identity = "bob"
			r[4].Hash = r[4].ChainHash()
			return r
		},
			[]job.ChainFault{job.ChainUnlinked}, []job.ChainFault{job.ChainSignature, job.ChainUnlinked}},
		"all is made anew from one on": {func(r []job.TrailRecord) []job.TrailRecord { r[4].Identity = "bob"; return again(r, 4) },
			nil, slices.Repeat([]job.ChainFault{job.ChainSignature}, 6)},
		"and without signatures": {func(r []job.TrailRecord) []job.TrailRecord {
			r[4].Identity = "bob"
			for i := range r {
				r[i].Signature = nil
			}
			return again(r, 4)
		}, nil, []job.ChainFault{job.ChainUnsigned}},
		"and with another key": {func(r []job.TrailRecord) []job.TrailRecord {
			r[4].Identity = "bob"
			mine := testKey("k1", 9)
			for i := range again(r, 4) {
				r[i].Signature = ed25519.Sign(mine.Key, job.SignedText(r[i].Hash))
			}
			return r
		}, nil, slices.Repeat([]job.ChainFault{job.ChainSignature}, 10)},
		"a key of another id": {func(r []job.TrailRecord) []job.TrailRecord { r[9].KeyID = "k2"; return r }, nil, []job.ChainFault{job.ChainUnknown}},
		"a version to come":   {func(r []job.TrailRecord) []job.TrailRecord { r[9].Version = 2; return r }, []job.ChainFault{job.ChainUnknown}, []job.ChainFault{job.ChainUnknown}},
	} {
		store := &memory{}
		for range 10 { // a signature each
			chainOf(t, store, 1, 1, &key)
		}
		plain, signed := c.change(slices.Clone(store.records)), []job.TrailRecord(nil)
		signed = c.change(slices.Clone(store.records))
		if got := faults(check(plain, nil)); !slices.Equal(got, c.plain) {
			t.Errorf("%s, without keys: %v, want %v", what, got, c.plain)
		}
		got := faults(check(signed, public))
		if what == "a key of another id" || what == "a version to come" { // and so the end is not covered
			c.signed = append(c.signed, job.ChainUnsigned)
		}
		if strings.HasPrefix(what, "all is made") || what == "and with another key" {
			c.signed = append(c.signed, job.ChainUnsigned)
		}
		if !slices.Equal(got, c.signed) {
			t.Errorf("%s, with keys: %v, want %v", what, got, c.signed)
		}
	}
}

// TestRecordsFromBeforeTheChain are no break before its first record without keys, and one after it.
func TestRecordsFromBeforeTheChain(t *testing.T) {
	store := &memory{records: []job.TrailRecord{{ID: "0-1", Method: "old"}, {ID: "0-2", Method: "old"}}}
	chainOf(t, store, 1, 3, nil)
	if breaks := check(store.records, nil); len(breaks) > 0 || store.head.Seq != 3 {
		t.Errorf("%+v", breaks)
	}
	store.records = append(store.records, job.TrailRecord{ID: "9-9", Method: "by a node of an earlier version"})
	chainOf(t, store, 1, 1, nil)
	if got := faults(check(store.records, nil)); !slices.Equal(got, []job.ChainFault{job.ChainUnchained}) {
		t.Errorf("%v", got)
	}
}

// TestLostReplyDoesNotRepeatTheWrite: an append that took effect is found, also behind those of others.
func TestLostReplyDoesNotRepeatTheWrite(t *testing.T) {
	for _, others := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			store := &memory{lost: errors.New("no answer")}
			r := recorder(t, Options{Store: store})
			r.Record(job.TrailRecord{Resource: "once"}, job.TrailPlace{})
			synctest.Wait()
			chainOf(t, store, 1, others, nil)
			r.Stop(context.Background())
			if len(store.records) != 1+others || testutil.ToFloat64(r.writtenRecords) != 1 || len(check(store.records, nil)) > 0 {
				t.Errorf("%d records, %v counted", len(store.records), testutil.ToFloat64(r.writtenRecords))
			}
		})
	}
}

// TestChainContinuesAfterASetBack is continued from what the node has seen, is counted, and shows.
func TestChainContinuesAfterASetBack(t *testing.T) {
	store := &memory{}
	r := recorder(t, Options{Store: store})
	defer r.Stop(context.Background())
	for i := range 5 {
		r.appendRecords([]job.TrailRecord{{Resource: fmt.Sprint(i)}})
	}
	copied := slices.Clone(store.records)
	store.records = store.records[:3]
	last := store.records[2]
	store.head = job.TrailHead{Seq: 3, Hash: last.Hash, Raw: "3 set back"}
	r.appendRecords([]job.TrailRecord{{Resource: "after"}})
	if got := testutil.ToFloat64(r.gauges.setBacks); got != 1 {
		t.Errorf("counted %v times", got)
	}
	breaks := check(store.records, nil)
	if len(breaks) != 1 || breaks[0].Fault != job.ChainMissing || breaks[0].Seq != 6 || !strings.Contains(breaks[0].Detail, "sequences 4 to 5") {
		t.Errorf("%+v", breaks)
	}
	// A copy from before goes on without a break.
	if breaks := check(append(copied, store.records[3]), nil); len(breaks) > 0 {
		t.Errorf("the copy: %+v", breaks)
	}
	store.head = job.TrailHead{Raw: "by hand"}
	r.appendRecords([]job.TrailRecord{{Resource: "later"}})
	if got := testutil.ToFloat64(r.gauges.setBacks); got != 2 || store.head.Seq != 7 {
		t.Errorf("counted %v times, end %d", got, store.head.Seq)
	}
}

// TestRetention: what goes first, and what exports hold.
func TestRetention(t *testing.T) {
	const hour = unixtime.Milli(3_600_000)
	state := func(change func(*job.TrailState)) job.TrailState {
		s := job.TrailState{NowMS: 1000 * hour, Head: job.TrailHead{Seq: 1000, Bytes: 400_000}, Newest: job.TrailRecord{ID: "3599999999-0"},
			OldestID: fmt.Sprintf("%d-0", 950*hour), OldestSeq: 501, OldestBytes: 200_400}
		if change != nil {
			change(&s)
		}
		return s
	}
	export := func(id string, seq int64) func(*job.TrailState) {
		return func(s *job.TrailState) {
			s.Exports = append(s.Exports, job.TrailExport{Name: "siem", ID: id, Seq: seq})
		}
	}
	keeps := retention{maxRecords: 400, maxAgeMS: int64(100 * hour), maxBytes: 1 << 20}
	aged, small := keeps, keeps
	aged.maxAgeMS, small.maxBytes = int64(10*hour), 100_000
	for what, c := range map[string]struct {
		r     retention
		state job.TrailState
		want  job.TrailTrim
	}{
		"by count":                     {keeps, state(nil), job.TrailTrim{Keep: 400}},
		"by age":                       {aged, state(nil), job.TrailTrim{Before: fmt.Sprintf("%d-0", 990*hour)}},
		"by bytes":                     {small, state(nil), job.TrailTrim{Keep: 225}},
		"by count, held":               {keeps, state(export("1-1", 520)), job.TrailTrim{Keep: 481}},
		"by count, acknowledged":       {keeps, state(export("1-1", 1000)), job.TrailTrim{Keep: 400}},
		"by age, held in part":         {aged, state(export(fmt.Sprintf("%d-7", 960*hour), 700)), job.TrailTrim{Before: fmt.Sprintf("%d-7", 960*hour)}},
		"by age, nothing acknowledged": {aged, state(export("", 500)), job.TrailTrim{Keep: 501}},
		"by bytes, held no longer":     {small, state(export("", 500)), job.TrailTrim{Keep: 225}},
		"oldest from before the chain": {small, state(func(s *job.TrailState) { s.OldestSeq, s.OldestBytes = 0, 0 }), job.TrailTrim{Keep: 400}},
		"empty":                        {aged, job.TrailState{NowMS: hour}, job.TrailTrim{Keep: 400}},
	} {
		if got := c.r.planTrim(c.state); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// TestExpiredRecordsAreRemovedWithoutWrites, and the removal is recorded once.
func TestExpiredRecordsAreRemovedWithoutWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		store := &memory{now: unixtime.MilliOf(begun)}
		r := recorder(t, Options{Store: store, Age: 2 * time.Hour, Node: "a"})
		r.Record(job.TrailRecord{Method: "old"}, job.TrailPlace{})
		synctest.Wait()
		for range 6 {
			time.Sleep(time.Hour)
			store.mu.Lock()
			store.now = unixtime.MilliOf(time.Now())
			store.mu.Unlock()
			time.Sleep(checkEvery)
			synctest.Wait()
		}
		r.Stop(t.Context())
		if len(store.records) != 1 || store.records[0].Method != ExpireMethod || store.records[0].Node != "a" || store.records[0].Seq > 3 {
			t.Errorf("%+v", store.records)
		}
	})
}

// TestExports: they hold what they have not acknowledged, never go back, are bounded, and their lag shows.
func TestExports(t *testing.T) {
	ctx := t.Context()
	store := &memory{now: 1_000_000}
	r := recorder(t, Options{Store: store})
	defer r.Stop(context.Background())
	for range 5 {
		r.appendRecords([]job.TrailRecord{{}})
	}
	acknowledge := func(name, id string, seq int64) (job.TrailExport, error) {
		e, _, err := r.Acknowledge(ctx, job.TrailAcknowledgement{Export: name, Identity: "ann", RecordID: id, Seq: seq})
		return e, err
	}
	e, err := acknowledge("siem", "", 0)
	if err != nil || e.Seq != 0 || e.Waiting != 5 || e.SinceMS != 1_000_000 {
		t.Fatalf("%+v, %v", e, err)
	}
	page, err := r.Read(ctx, "", 3)
	read := page.Records
	if err != nil || len(read) != 3 || read[0].Seq != 1 || page.Head.Seq != 5 || page.More {
		t.Fatalf("%+v, %v", page, err)
	}
	for range 2 {
		if e, err = acknowledge("siem", read[2].ID, read[2].Seq); err != nil || e.Seq != 3 || e.Waiting != 2 {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if e, err = acknowledge("siem", read[0].ID, read[0].Seq); err != nil || e.Seq != 3 {
		t.Errorf("it goes back: %+v, %v", e, err)
	}
	store.now += 90_000
	r.checkChain()
	if lag, waiting := testutil.ToFloat64(r.gauges.lag), testutil.ToFloat64(r.gauges.waitingRecords); lag != 90 || waiting != 2 {
		t.Errorf("lag %v, waiting %v", lag, waiting)
	}
	store.records = store.records[4:] // for want of bytes
	r.checkChain()
	if got := testutil.ToFloat64(r.gauges.missed); got != 1 {
		t.Errorf("%v are missing", got)
	}
	for _, bad := range []struct {
		name, id string
		seq      int64
	}{{"", "", 0}, {"Siem", "", 0}, {"a b", "", 0}, {strings.Repeat("a", 64), "", 0}, {"siem", "x", 0}, {"siem", "9999999-0", 5}, {"siem", read[2].ID, 9}, {"siem", read[2].ID, -1}} {
		if _, err := acknowledge(bad.name, bad.id, bad.seq); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	for i := range job.MaxTrailExports {
		_, err = acknowledge(fmt.Sprintf("e%d", i), "", 0)
	}
	if err == nil {
		t.Error("there is no end of exports")
	}
	if err := r.DeleteExport(ctx, "siem"); err != nil {
		t.Fatal(err)
	}
	if list, err := r.Exports(ctx); err != nil || len(list) != job.MaxTrailExports-1 {
		t.Errorf("%d, %v", len(list), err)
	}
}

// TestSignerReloadsItsFile, and keeps the last good key.
func TestSignerReloadsItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	one, two := testKey("k1", 1), testKey("k2", 2)
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	same := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for _, bad := range []string{"", "private k1", "private k1 x", "private k1 " + base64.StdEncoding.EncodeToString([]byte("short")), "private k1 " + same, one.PrivateLine() + "\n" + one.PrivateLine()} {
		put(bad)
		if _, err := LoadSigner(path); err == nil || len(bad) > 18 && strings.Contains(err.Error(), bad[11:18]) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	put("# old\n" + one.PrivateLine() + "\n")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadSigner(path); err == nil || !strings.Contains(err.Error(), "write") {
		t.Errorf("a file that any user may write: %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadSigner(path)
	if err != nil || s.Keys()[0].ID != "k1" {
		t.Fatal(err)
	}
	put(two.PrivateLine() + "\n" + one.PrivateLine())
	if changed, err := s.Reload(nil), s.LoadError(); !changed || err != nil || s.Keys()[0].ID != "k2" {
		t.Errorf("%v, %v", changed, err)
	}
	put("nothing")
	if changed, err := s.Reload(nil), s.LoadError(); changed || err == nil || s.Keys()[0].ID != "k2" {
		t.Errorf("%v, %v", changed, err)
	}
	public, err := job.ParseChainPublicKeys(one.PublicLine() + "\n" + two.PublicLine())
	if err != nil || !public["k1"].Equal(one.Key.Public()) {
		t.Errorf("%v, %v", public, err)
	}
}

// TestAuditKeysAreNotConfused: a seed and a public key look the same.
func TestAuditKeysAreNotConfused(t *testing.T) {
	key := testKey("k1", 1)
	private, public := key.PrivateLine(), key.PublicLine()
	_, encoded, _ := strings.Cut(private, "k1 ")
	for text, want := range map[string]string{
		public:                         "line 1: this is a public key",
		private + "\n" + public:        "line 2: this is a public key",
		"k1 " + encoded:                "line 1: want the word private",
		"private " + encoded:           "line 1: want the word private",
		"Private k1 " + encoded:        "line 1: want the word private",
		"private k1 " + encoded + " x": "line 1: want the word private",
	} {
		if _, err := job.ParseChainKeys(text); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), encoded) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		private:                 "line 1: this is a private key",
		public + "\n" + private: "line 2: this is a private key",
		"k1 " + encoded:         "line 1: want the word public",
	} {
		if _, err := job.ParseChainPublicKeys(text); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), encoded) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
