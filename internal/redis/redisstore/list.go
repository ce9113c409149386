package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	scanStep   = 500                   // fields looked at by one command
	pageTime   = 50 * time.Millisecond // after which a page is handed out as it is
	maxScanned = 5000
)

// List walks the jobs of a namespace (of all, if it is empty) in no particular
// order. It looks at about budget records (at most 5,000) or for 50 ms, so that a
// page may be short or empty before the end; the end is an empty next cursor. A
// job that exists all the while is listed at least once. Record.IndexMS is zero.
func (s *Store) List(ctx context.Context, namespace, cursor string, budget int) (jobs []job.Record, next string, err error) {
	next, err = s.scanShards(ctx, namespace, cursor, budget, func(shard int, found []scannedRecord) (int, error) {
		for _, f := range found {
			if !isChild(f.id) {
				jobs = append(jobs, f.Record)
			}
		}
		return len(found), nil
	})
	if err != nil {
		return nil, "", err
	}
	return jobs, next, nil
}

// scannedRecord is a record that has a definition of its own: a job or a dead letter.
type scannedRecord struct {
	id job.RecordID
	job.Record
}

// scanShards is one page: it hands the records to take, step by step, which returns how
// many of them count for the budget.
func (s *Store) scanShards(ctx context.Context, namespace, cursor string, budget int, take func(shard int, found []scannedRecord) (int, error)) (next string, err error) {
	shard, at, err := s.parseCursor(cursor)
	if err != nil {
		return "", err
	}
	budget = max(1, min(budget, maxScanned))
	end := s.now().Add(pageTime)
	for shard < len(s.shards) {
		step := min(budget, scanStep)
		found, following, err := s.scan(ctx, shard, at, namespace, step)
		if err != nil {
			return "", err
		}
		n, err := take(shard, found)
		if err != nil {
			return "", err
		}
		if at = following; at == "0" {
			shard++
		}
		if budget -= max(step, n); budget <= 0 || !s.now().Before(end) {
			break
		}
	}
	if shard == len(s.shards) {
		return "", nil
	}
	return strconv.Itoa(shard) + "." + at, nil
}

// parseCursor reads "shard.position"; empty is the start.
func (s *Store) parseCursor(cursor string) (shard int, at string, err error) {
	if cursor == "" {
		return 0, "0", nil
	}
	left, at, ok := strings.Cut(cursor, ".")
	shard, err = strconv.Atoi(left)
	_, err2 := strconv.ParseUint(at, 10, 64)
	if !ok || err != nil || err2 != nil || shard < 0 || shard >= len(s.shards) {
		return 0, "", fmt.Errorf("%w: %.40q", job.ErrCursor, cursor)
	}
	return shard, at, nil
}

// scan reads one step of a shard's definitions, and their states.
func (s *Store) scan(ctx context.Context, shard int, at, namespace string, step int) ([]scannedRecord, string, error) {
	key := s.shards[shard].def
	args := []any{"hscan", key, at, "count", step}
	if namespace != "" {
		args = append(args, "match", escapeGlob(namespace)+"/*")
	}
	o := newCommand("hscan", key, args...)
	if err := s.runAndWrap(ctx, o); err != nil {
		return nil, "", err
	}
	var ids []job.RecordID
	var defs []string
	fields := o.reply.listAt(1)
	for i := 0; i+1 < len(fields); i += 2 {
		ids, defs = append(ids, job.RecordID(fields.textAt(i))), append(defs, fields.textAt(i+1))
	}
	if len(ids) == 0 {
		return nil, o.reply.textAt(0), nil
	}
	states := readFields(shard, s.shards[shard].state, ids)
	if err := s.runAndWrap(ctx, states); err != nil {
		return nil, "", err
	}
	var out []scannedRecord
	for i, id := range ids {
		raw := rawRecord{state: states.reply.textAt(i), hasState: states.reply.hasTextAt(i), def: defs[i], hasDef: true}
		record, err := raw.record(id)
		if err != nil {
			s.reportCorrupt(shard, "list", err, string(id))
		} else if record != nil {
			out = append(out, scannedRecord{id, *record})
		}
	}
	return out, o.reply.textAt(0), nil
}

// escapeGlob makes a pattern that matches just the text.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
