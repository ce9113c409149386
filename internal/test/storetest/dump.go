package storetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
)

// line is one value of a keyspace: a text, a field of a hash, or a member of a sorted
// set. Each character of Field and Value is one byte, so that any bytes are readable
// text.
type line struct {
	Key   string `json:"key"`
	Type  string `json:"type"`
	Field string `json:"field,omitempty"`
	Value string `json:"value"`
}

// Dump writes a keyspace as JSON lines, in a fixed order. What is different each time
// (the ids of calls in rate limits) is replaced, and that some keys expire is left
// out.
func Dump(w *World) []byte {
	w.T.Helper()
	ctx := w.T.Context()
	keys, err := w.Client.Keys(ctx, w.Prefix+":*").Result()
	if err != nil {
		w.T.Fatal(err)
	}
	slices.Sort(keys)
	var out bytes.Buffer
	for _, key := range keys {
		kind := w.Client.Type(ctx, key).Val()
		put := func(field, value string) {
			text, err := json.Marshal(line{Key: key, Type: kind, Field: toLatin1(field), Value: toLatin1(value)})
			if err != nil {
				w.T.Fatal(err)
			}
			out.Write(append(text, '\n'))
		}
		switch kind {
		case "hash":
			fields := w.Client.HGetAll(ctx, key).Val()
			if key == w.Prefix+":{meta}" {
				delete(fields, "id") // which is random
			}
			for _, field := range slices.Sorted(maps.Keys(fields)) {
				put(field, fields[field])
			}
		case "zset":
			for _, z := range w.Client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				put(z.Member.(string), strconv.FormatFloat(z.Score, 'f', -1, 64))
			}
		case "string":
			value := w.Client.Get(ctx, key).Val()
			if strings.Contains(key, ":rate:") {
				value = maskCalls(value)
			}
			put("", value)
		default:
			w.T.Fatalf("%s is a %s", key, kind)
		}
	}
	return out.Bytes()
}

// maskCalls replaces the ids of the calls in a rate limit: see limit_rate.lua.
func maskCalls(text string) string {
	const head, call, id = 35, 36, 12
	b := []byte(text)
	for at := head; at+call <= len(b); at += call {
		copy(b[at:], strings.Repeat("*", id))
	}
	return string(b)
}

// Load fills a server with a dump and returns the latest clock in it.
func Load(t testing.TB, client redis.UniversalClient, dump []byte) (clock int64) {
	t.Helper()
	ctx := t.Context()
	pipe := client.Pipeline()
	for text := range bytes.Lines(dump) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		field, value := fromLatin1(l.Field), fromLatin1(l.Value)
		switch l.Type {
		case "hash":
			pipe.HSet(ctx, l.Key, field, value)
			if strings.HasSuffix(l.Key, ":meta") && field == "c" {
				ms, _ := strconv.ParseInt(value[:16], 10, 64)
				clock = max(clock, ms)
			}
		case "zset":
			score, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			pipe.ZAdd(ctx, l.Key, redis.Z{Member: field, Score: score})
		case "string":
			pipe.Set(ctx, l.Key, value, 0)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	return clock
}

// toLatin1 reads each byte as a character, unlatin undoes it.
func toLatin1(s string) string {
	out := make([]rune, len(s))
	for i := range len(s) {
		out[i] = rune(s[i])
	}
	return string(out)
}

func fromLatin1(s string) string {
	var out []byte
	for _, r := range s {
		out = append(out, byte(r))
	}
	return string(out)
}

// DescribeKeyspace describes what this version reads in a keyspace, in text that stay the same
// when fields are added: only what is not zero is listed.
func DescribeKeyspace(w *World, jobs []job.Key) string {
	w.T.Helper()
	ctx := w.T.Context()
	var b strings.Builder
	for _, key := range jobs {
		shard := w.Store.ShardOf(key)
		ids := []job.RecordID{key.Record()}
		for slot := range job.DeadLettersPerJob {
			ids = append(ids, key.Record().Letter(slot))
		}
		for slot := range job.MaxConcurrentRuns {
			ids = append(ids, key.Record().Run(slot))
		}
		records, err := w.Store.GetRecords(ctx, shard, ids)
		if err != nil {
			w.T.Fatal(err)
		}
		for i, r := range records {
			switch {
			case r != nil:
				fmt.Fprintf(&b, "%s\n", ids[i])
				writeFields(&b, "  state", reflect.ValueOf(r.State))
				if !strings.Contains(string(ids[i]), "#r") {
					writeFields(&b, "  definition", reflect.ValueOf(*r.Definition))
				}
			case i == 0:
				w.T.Fatalf("%s cannot be read", ids[0])
			}
		}
		if err := records[0].State.Check(); err != nil {
			w.T.Errorf("%s: %v", ids[0], err)
		}
		runs, err := w.Store.Runs(ctx, key, records[0].Definition.HistoryLimit)
		if err != nil {
			w.T.Fatal(err)
		}
		for _, run := range runs {
			fmt.Fprintf(&b, "%s run %s\n", ids[0], run.ID)
			writeFields(&b, "  run", reflect.ValueOf(run))
		}
	}
	w.limitsMeaning(&b)
	return b.String()
}

func (w *World) limitsMeaning(b *strings.Builder) {
	ctx := w.T.Context()
	letters := w.readLetters("ns", 1000)
	for _, record := range slices.Sorted(maps.Keys(letters)) {
		l := letters[record]
		fmt.Fprintf(b, "dead letter %s of %s until %d\n", record, l.Run.ID, l.ExpireMS)
	}
	settings, err := w.Store.Limits().QueueSettings(ctx)
	if err != nil {
		w.T.Fatal(err)
	}
	byName := func(a, b job.QueueKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Queue, b.Queue))
	}
	for _, q := range slices.SortedFunc(maps.Keys(settings), byName) {
		fmt.Fprintf(b, "queue %s/%s\n", q.Namespace, q.Queue)
		writeFields(b, "  settings", reflect.ValueOf(settings[q]))
	}
	room, err := w.Store.Limits().FreeUnits(ctx, job.LockName("ns", "db"), 2)
	if err != nil {
		w.T.Fatal(err)
	}
	cell := w.Store.Limits().ReadCells(ctx, []string{job.TargetName("ns", "api.example.com")})[0]
	if cell.Err != nil {
		w.T.Fatal(cell.Err)
	}
	fmt.Fprintf(b, "lock db has %d of 2 free\ntarget api.example.com: %s\n", room, cell.Text)
}

// writeFields writes the fields that are not zero, one per line.
func writeFields(b *strings.Builder, path string, v reflect.Value) {
	switch {
	case v.IsZero():
	case v.Kind() == reflect.Struct && v.Type().PkgPath() != "time":
		for i := range v.NumField() {
			writeFields(b, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			writeFields(b, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		fmt.Fprintf(b, "%s = %q\n", path, v.Bytes())
	case v.Kind() == reflect.String:
		fmt.Fprintf(b, "%s = %q\n", path, v.String())
	default:
		fmt.Fprintf(b, "%s = %v\n", path, v.Interface())
	}
}
