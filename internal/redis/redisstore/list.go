package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

const (
	scanStep   = 100 // fields looked at by one command; leases wait while it runs
	maxScanned = 5000
	// walkBytes bounds the definitions that one page reads, whether they match or not. The last read may exceed it by
	// a few definitions.
	walkBytes = 2 << 20
)

// List walks the jobs of a namespace (of all, if it is empty) in no particular
// order. It looks at about budget records (at most 5,000) or reads 2 MiB of definitions, so that a
// page may be short or empty before the end; the end is an empty next cursor. A
// job that exists all the while is listed at least once. Record.IndexMS is zero.
//
// Where a page ends depends on what is stored alone, not on time: callers who hand out a part of it read it again, and
// have to find the same end.
func (s *Store) List(ctx context.Context, namespace, cursor string,
	budget int) (jobs []job.Record, next string, err error) {
	next, _, err = s.scanShards(ctx, namespace, cursor, budget, func(shard int, found []scannedRecord) (int, error) {
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

// scanShards is one page: it hands the records to take, step by step, which returns how many of them count for the
// budget. bytes is how many bytes of definitions it has read.
func (s *Store) scanShards(ctx context.Context, namespace, cursor string, budget int,
	take func(shard int, found []scannedRecord) (int, error)) (next string, bytes int, err error) {
	shard, at, err := s.parseCursor(cursor)
	if err != nil {
		return "", 0, err
	}
	budget = max(1, min(budget, maxScanned))
	room := walkBytes
	for shard < len(s.shards) {
		step := min(budget, scanStep)
		found, following, read, err := s.scan(ctx, shard, at, namespace, step, room)
		if err != nil {
			return "", 0, err
		}
		room, bytes = room-read, bytes+read
		n, err := take(shard, found)
		if err != nil {
			return "", 0, err
		}
		at = following
		if at == "0" {
			shard++
		}
		budget -= max(step, n)
		if budget <= 0 || room <= 0 {
			break
		}
	}
	if shard == len(s.shards) {
		return "", bytes, nil
	}
	return strconv.Itoa(shard) + "." + at, bytes, nil
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

// scan reads one step of a shard's definitions, about room bytes of them, and their states. read is how many bytes it
// read.
func (s *Store) scan(ctx context.Context, shard int, at, namespace string,
	step, room int) (found []scannedRecord, next string, read int, err error) {
	pattern := ""
	if namespace != "" {
		pattern = escapeGlob(namespace) + "/*"
	}
	o := runner.NewScriptCall(s.scripts.walk, shard, []string{s.shards[shard].Def}, []any{at, step, room, pattern})
	if err := s.runner.Run(ctx, o); err != nil {
		return nil, "", 0, err
	}
	var ids []job.RecordID
	var defs []string
	fields := o.Reply.ListAt(1)
	for i := 0; i+1 < len(fields); i += 2 {
		ids, defs = append(ids, job.RecordID(fields.TextAt(i))), append(defs, fields.TextAt(i+1))
		read += len(fields.TextAt(i)) + len(fields.TextAt(i+1))
	}
	if len(ids) == 0 {
		return nil, o.Reply.TextAt(0), 0, nil
	}
	states := runner.NewFieldsRead(shard, s.shards[shard].State, ids)
	if err := s.runner.Run(ctx, states); err != nil {
		return nil, "", 0, err
	}
	for i, id := range ids {
		raw := rawRecord{state: states.Reply.TextAt(i), hasState: states.Reply.HasTextAt(i), def: defs[i], hasDef: true}
		record, err := raw.record(id)
		if err != nil {
			s.runner.ReportCorrupt(shard, "list", err, string(id))
		} else if record != nil {
			found = append(found, scannedRecord{id, *record})
		}
	}
	return found, o.Reply.TextAt(0), read, nil
}

// escapeGlob makes a pattern that matches just the text.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
