package storetest_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

var update = flag.Bool("update", false, "rewrite the golden dump of the present schema")

// goldenPrefix is that of the keyspaces in testdata.
const goldenPrefix = "golden"

func asGolden(o *redisstore.Options) { o.Caller = "golden-node" }

// TestStoredBytesMatchGoldenDump: this version stores, to the byte, what its golden dump holds.
func TestStoredBytesMatchGoldenDump(t *testing.T) {
	client := redistest.Start(t).Client()
	w := storetest.NewWorldAt(t, client, goldenPrefix, storetest.Start, asGolden)
	ids := storetest.Specimen(w)
	dump := storetest.Dump(w)
	dir := filepath.Join("testdata", fmt.Sprint("schema-", redisstore.SchemaVersion))
	meaning := storetest.DescribeKeyspace(w, keysOf(ids))
	if *update {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{"dump.jsonl": dump, "meaning.txt": []byte(meaning)} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, err := os.ReadFile(filepath.Join(dir, "dump.jsonl"))
	if err != nil {
		t.Fatalf("%v: make it with -update", err)
	}
	if bytes.Equal(dump, want) {
		return
	}
	got, old := strings.Split(string(dump), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(got), len(old)) {
		if got[i] != old[i] {
			t.Errorf("line %d of %s is stored as\n%s\nand was\n%s", i+1, dir, got[i], old[i])
			break
		}
	}
	t.Errorf("what is stored has changed (%d lines, were %d). If older nodes can do without what is new, as docs/upgrades.md has it: "+
		"move testdata/schema-N to testdata/schema-N.<release>, and make the new dump with -update. Otherwise the schema has changed: "+
		"bump redisstore.SchemaVersion, keep the old dump, and add a new one with -update", len(got), len(old))
}

func keysOf(ids []string) []job.Key {
	var keys []job.Key
	for _, id := range ids {
		keys = append(keys, job.Key{Namespace: "ns", ID: id})
	}
	return keys
}

// TestGoldenDumpsOfAllSchemas reads the golden dumps of this schema and of all before it, and
// goes on with the work: in keyspaces that keep their schema, and in those that are
// raised to the present one while the store is open.
func TestGoldenDumpsOfAllSchemas(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("testdata", "schema-*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no golden dumps: %v", err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) { whatWasStored(t, dir, false) })
		t.Run(filepath.Base(dir)+" raised", func(t *testing.T) { whatWasStored(t, dir, true) })
	}
}

func whatWasStored(t *testing.T, dir string, raised bool) {
	dump, err := os.ReadFile(filepath.Join(dir, "dump.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(dir, "meaning.txt"))
	if err != nil {
		t.Fatal(err)
	}
	client := redistest.Start(t).Client()
	clock := storetest.Load(t, client, dump)
	w := storetest.NewWorldAt(t, client, goldenPrefix, clock, asGolden)
	var schema int
	if _, err := fmt.Sscanf(filepath.Base(dir), "schema-%d", &schema); err != nil {
		t.Fatal(err)
	}
	if raised {
		schema = redisstore.SchemaVersion
		if err := client.HSet(t.Context(), goldenPrefix+":{meta}", "schema", redisstore.SchemaVersion).Err(); err != nil {
			t.Fatal(err)
		}
		if err := w.Store.CheckSchema(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.CheckConsistency()
	keys := storedJobs(t, string(want))
	if got, want := sortFields(storetest.DescribeKeyspace(w, keys)), sortFields(string(want)); got != want {
		t.Errorf("the meaning has changed:\n%s", firstDifference(got, want))
	}
	plain := storetest.Definition("without-history") // of which the latest schema has states of its own
	plain.HistoryLimit = 0
	w.Add(plain)
	goOn(t, w, append(keys, plain.Key))
	w.CheckConsistency()
	// A node that knows a lower schema reads no state whose tail is of a later version.
	// Schema 4 is about payloads: its states are those of schema 3.
	if latest := latestTail(t, w); latest != min(schema, 3) {
		t.Errorf("states have tails up to version %d in a keyspace of schema %d", latest, schema)
	}
}

// sortFields is a meaning with the fields of each record sorted: where a field stands in
// its type means nothing.
func sortFields(meaning string) string {
	lines := slices.Collect(strings.Lines(meaning))
	for i := 0; i < len(lines); {
		from := i
		for i < len(lines) && strings.HasPrefix(lines[i], " ") {
			i++
		}
		slices.Sort(lines[from:i])
		if i == from {
			i++ // the heading of a record
		}
	}
	return strings.Join(lines, "")
}

// latestTail is the greatest version of a state's tail.
func latestTail(t *testing.T, w *storetest.World) (version int) {
	t.Helper()
	for shard := range w.Store.Shards() {
		for _, state := range w.Client.HGetAll(t.Context(), w.Key(shard, "st")).Val() {
			if len(state) > 35 {
				version = max(version, int(state[35]-'0'))
			}
		}
	}
	return version
}

// storedJobs lists the jobs of a meaning, in its order.
func storedJobs(t *testing.T, meaning string) (keys []job.Key) {
	t.Helper()
	for text := range strings.Lines(meaning) {
		record, ok := job.ParseRecordID(strings.TrimSpace(text))
		if ok && record.IsJob() && strings.HasPrefix(text, "ns/") && !strings.Contains(text, " ") {
			keys = append(keys, record.Key())
		}
	}
	if len(keys) < 20 {
		t.Fatalf("%d jobs", len(keys))
	}
	return keys
}

func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			from := max(0, i-3)
			return fmt.Sprintf("line %d\n%s\nwas\n%s", i+1, strings.Join(a[from:min(len(a), i+3)], "\n"), strings.Join(b[from:min(len(b), i+3)], "\n"))
		}
	}
	return fmt.Sprintf("%d lines, were %d", len(a), len(b))
}

// goOn pauses and resumes every job, and runs what comes due within a day.
func goOn(t *testing.T, w *storetest.World, keys []job.Key) {
	t.Helper()
	change := func(key job.Key, ev job.Input) {
		t.Helper()
		r := getRecord(t, w, key)
		if r == nil {
			return
		}
		if write := w.Decide(key.Record(), r.Definition, r.State, ev); write.Decision.Changed {
			w.MustWrite(w.Store.ShardOf(key), write)
		}
	}
	for _, key := range keys {
		change(key, job.Pause{Note: "for the upgrade"})
		change(key, job.Resume{CatchUp: true})
	}
	w.CheckConsistency()
	ran := map[string]bool{}
	for range 10 {
		w.Advance(time.Hour)
		for _, key := range keys {
			if r := getRecord(t, w, key); r != nil && r.State.Live() {
				change(key, job.LoseLease{Token: r.State.Token})
			}
			r := getRecord(t, w, key)
			if r == nil || r.State.Region != job.RegionDue || r.State.Due > unixtime.Milli(w.Clock.Load()) {
				continue
			}
			shard := w.Store.ShardOf(key)
			for _, l := range w.Store.Lease(t.Context(), []job.LeaseRequest{storetest.LeaseRequest(shard, 3, "", r.State.Lane)})[0].Leased {
				ev := job.FinishAttempt{Token: l.Known.State.Token, Outcome: job.OutcomeSucceeded, StartedMS: unixtime.Milli(w.Clock.Load())}
				if l.Record.Job() == l.Record {
					change(key, ev)
				} else {
					w.MustWrite(shard, familyOf(t, w, shard, l.Record, ev)...)
				}
				ran[key.ID] = true
			}
		}
	}
	if len(ran) < 15 {
		t.Errorf("only %d jobs went on: %v", len(ran), ran)
	}
	for _, id := range []string{"due", "backing-off", "retrying", "paused", "held-by-lock", "backfill", "children", "manual"} {
		if slices.ContainsFunc(keys, func(k job.Key) bool { return k.ID == id }) && !ran[id] {
			t.Errorf("%s did not go on", id)
		}
	}
}

func getRecord(t *testing.T, w *storetest.World, key job.Key) *job.Record {
	t.Helper()
	records, err := w.Store.Get(t.Context(), []job.Key{key})
	if err != nil {
		t.Fatal(err)
	}
	return records[0]
}

func familyOf(t *testing.T, w *storetest.World, shard int, record job.RecordID, ev job.Input) []job.Write {
	t.Helper()
	found, err := w.Store.GetRecords(t.Context(), shard, []job.RecordID{record.Job(), record})
	if err != nil || found[0] == nil || found[1] == nil {
		t.Fatalf("%s: %+v %v", record, found, err)
	}
	return w.DecideChild(record, found[0].Definition, found[0].State, found[1].State, ev)
}

// TestSpecimenIsComplete: a field that is zero in all of the specimen would not be in
// its golden dump.
func TestSpecimenIsComplete(t *testing.T) {
	meaning, err := os.ReadFile(filepath.Join("testdata", fmt.Sprint("schema-", redisstore.SchemaVersion), "meaning.txt"))
	if err != nil {
		t.Fatal(err)
	}
	told := regexp.MustCompile(`\[\d+\]`).ReplaceAllString(string(meaning), "")
	for what, of := range map[string]reflect.Type{
		"state": reflect.TypeFor[job.State](), "definition": reflect.TypeFor[job.Definition](), "run": reflect.TypeFor[job.Run](),
	} {
		for _, path := range leafFields("  "+what, of) {
			known := strings.HasSuffix(path, ".Unknown") || path == "  run.ManualID"
			if !known && !strings.Contains(told, path+" = ") {
				t.Errorf("%s is not set anywhere", path)
			}
		}
	}
}

func leafFields(path string, of reflect.Type) []string {
	switch {
	case of.Kind() == reflect.Struct && of.PkgPath() != "time":
		var all []string
		for i := range of.NumField() {
			all = append(all, leafFields(path+"."+of.Field(i).Name, of.Field(i).Type)...)
		}
		return all
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct:
		return leafFields(path, of.Elem())
	}
	return []string{path}
}
