package redisstore

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// trailKey is the stream of audit records. Like the keyspace it belongs to no shard.
func trailKey(prefix string) string { return runner.KeyspaceKey(prefix) + ":audit" }

// trailHeadKey and trailExportsKey are hashes: the end of the chain, and how far exports have come.
func trailHeadKey(prefix string) string    { return trailKey(prefix) + ":head" }
func trailExportsKey(prefix string) string { return trailKey(prefix) + ":exports" }

// maxTrailNumber bounds sequences and sums of bytes, which nodes add to: a number that another program wrote must not
// overflow. No cluster comes near the bound, and every program reads numbers up to it exactly.
const maxTrailNumber = 1 << 53

// trailNumber reads a number that is not negative and within bounds; else it is 0.
func trailNumber(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxTrailNumber {
		return 0
	}
	return n
}

// trailOverhead is about what a record takes beside its fields.
const trailOverhead = 48

// AppendTrail adds records to the chain, and removes the records that trim selects, if the chain still has the head
// that the caller has read; otherwise done is false. The records already have their ids, in increasing order, and their
// links.
func (s *Store) AppendTrail(ctx context.Context, head job.TrailHead, records []job.TrailRecord,
	trim job.TrailTrim) (done bool, err error) {
	mode, bound := "", ""
	switch {
	case trim.Before != "":
		mode, bound = "minid", trim.Before
	case trim.Keep > 0:
		mode, bound = "maxlen", strconv.FormatInt(trim.Keep, 10)
	}
	total := head.Bytes
	var entries []any
	for _, r := range records {
		fields, size := encodeTrail(r)
		total += size
		fields = append(fields, trailEnd, strconv.FormatInt(total, 10))
		entries = append(append(entries, r.ID, len(fields)), fields...)
	}
	last := records[len(records)-1]
	o := runner.NewScriptCall(s.scripts.trail, runner.NoShard, []string{trailKey(s.prefix), trailHeadKey(s.prefix)},
		append([]any{head.Raw, encodeHead(last.Seq, last.Hash, total), mode, bound}, entries...))
	if err := s.runner.Run(ctx, o); err != nil {
		return false, err
	}
	return o.Reply.IntAt(0) == 1, nil
}

// encodeHead is what the head's hash holds: one text, which is compared as a whole.
func encodeHead(seq int64, hash []byte, bytes int64) string {
	return fmt.Sprintf("%d %s %d", seq, encodeBytes(hash), bytes)
}

func decodeHead(raw string) job.TrailHead {
	head := job.TrailHead{Raw: raw}
	parts := strings.Split(raw, " ")
	if len(parts) != 3 {
		return head // written by another program: a new chain begins
	}
	if seq, total := trailNumber(parts[0]), trailNumber(parts[2]); seq > 0 && total > 0 {
		head.Seq, head.Hash, head.Bytes = seq, decodeBytes(parts[1]), total
	}
	return head
}

// TrailState reads what appending goes by.
func (s *Store) TrailState(ctx context.Context) (job.TrailState, error) {
	stream, head, exports := trailKey(s.prefix), trailHeadKey(s.prefix), trailExportsKey(s.prefix)
	ops := []*runner.Op{
		runner.NewCommand("audit", head, "hget", head, "head"),
		runner.NewCommand("audit", stream, "xrange", stream, "-", "+", "count", 1),
		runner.NewCommand("audit", stream, "xrevrange", stream, "+", "-", "count", 1),
		runner.NewCommand("audit", exports, "hgetall", exports),
		runner.NewCommand("audit", stream, "time"),
	}
	if s.runner.Virtual() { // tests that move the clock
		ops = ops[:4]
	}
	if err := s.runner.Run(ctx, ops...); err != nil {
		return job.TrailState{}, err
	}
	state := job.TrailState{Head: decodeHead(ops[0].Reply.TextAt(0)), NowMS: unixtime.MilliOf(time.Now())}
	if len(ops) > 4 {
		seconds, _ := strconv.ParseInt(ops[4].Reply.TextAt(0), 10, 64)
		micros, _ := strconv.ParseInt(ops[4].Reply.TextAt(1), 10, 64)
		state.NowMS = unixtime.Milli(seconds*1000 + micros/1000)
	}
	if oldest := ops[1].Reply.ListAt(0); len(oldest) > 1 {
		r := decodeTrail(oldest.TextAt(0), oldest.ListAt(1))
		state.OldestID, state.OldestSeq = r.ID, r.Seq
		if r.Seq > 0 {
			state.OldestBytes = trailNumber(fieldOf(oldest.ListAt(1), trailEnd))
		}
	}
	if newest := ops[2].Reply.ListAt(0); len(newest) > 1 {
		state.Newest = decodeTrail(newest.TextAt(0), newest.ListAt(1))
	}
	state.Exports = decodeExports(ops[3].Reply)
	return state, nil
}

// ReadTrailFrom returns up to n records, oldest first, after the one with the id after.
func (s *Store) ReadTrailFrom(ctx context.Context, after string, n int) (records []job.TrailRecord, err error) {
	start := "-"
	if after != "" {
		start = "(" + after
	}
	key := trailKey(s.prefix)
	o := runner.NewCommand("audit", key, "xrange", key, start, "+", "count", n)
	if err := s.runner.Run(ctx, o); err != nil {
		return nil, err
	}
	for i := range o.Reply {
		entry := o.Reply.ListAt(i)
		records = append(records, decodeTrail(entry.TextAt(0), entry.ListAt(1)))
	}
	return records, nil
}

// exportIdentityField is the field with the identity that an export belongs to. Nodes of earlier builds skip it,
// because its value is one word.
func exportIdentityField(name string) string { return exportIdentityPrefix + name }

const exportIdentityPrefix = "identity:"

// SaveTrailExport stores an export, if it is still as the caller has read it; otherwise done is false. The zero value
// of was is that of an export that does not exist.
func (s *Store) SaveTrailExport(ctx context.Context, e, was job.TrailExport) (done bool, err error) {
	seen := ""
	if was.Name != "" {
		seen = encodePosition(was)
	}
	o := runner.NewScriptCall(s.scripts.export, runner.NoShard, []string{trailExportsKey(s.prefix)},
		[]any{e.Name, exportIdentityField(e.Name), seen, encodeBytes([]byte(was.Identity)), encodePosition(e),
			encodeBytes([]byte(e.Identity))})
	if err := s.runner.Run(ctx, o); err != nil {
		return false, err
	}
	return o.Reply.IntAt(0) == 1, nil
}

func encodePosition(e job.TrailExport) string {
	return fmt.Sprintf("%d %d %s", e.Seq, e.UpdatedMS, e.ID)
}

// DropTrailExport forgets an export, if there is one.
func (s *Store) DropTrailExport(ctx context.Context, name string) error {
	key := trailExportsKey(s.prefix)
	return s.runner.Run(ctx, runner.NewCommand("audit", key, "hdel", key, name, exportIdentityField(name)))
}

// decodeExports reads a hash, which is a map in RESP3 and a list in RESP2.
func decodeExports(answer runner.Reply) []job.TrailExport {
	fields := answer
	if m, ok := answer.ValueAt(0).(map[any]any); ok {
		fields = nil
		for name, value := range m {
			fields = append(fields, name, value)
		}
	}
	var out []job.TrailExport
	identities := map[string]string{}
	for i := 0; i+1 < len(fields); i += 2 {
		if name, ok := strings.CutPrefix(fields.TextAt(i), exportIdentityPrefix); ok {
			identities[name] = string(decodeBytes(fields.TextAt(i + 1)))
			continue
		}
		parts := strings.SplitN(fields.TextAt(i+1), " ", 3)
		if len(parts) != 3 {
			continue // not ours
		}
		e := job.TrailExport{Name: fields.TextAt(i), ID: job.NormalizeTrailID(parts[2])} // earlier builds did not
		e.Seq, e.UpdatedMS = trailNumber(parts[0]), unixtime.Milli(trailNumber(parts[1]))
		out = append(out, e)
	}
	for i := range out {
		out[i].Identity = identities[out[i].Name]
	}
	slices.SortFunc(out, func(a, b job.TrailExport) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ReadTrail returns up to n audit records, newest first: from the instant toMS,
// exclusive, or after the record with the id before, to fromMS. Zero values mean no
// bound. next is empty when there are no more.
func (s *Store) ReadTrail(ctx context.Context, before string, fromMS, toMS unixtime.Milli,
	n int) (records []job.TrailRecord, next string, err error) {
	end, start := "+", "-"
	if toMS > 0 {
		end = fmt.Sprintf("(%d-0", toMS)
	}
	if before != "" {
		end = "(" + before
	}
	if fromMS > 0 {
		start = strconv.FormatInt(int64(fromMS), 10)
	}
	key := trailKey(s.prefix)
	o := runner.NewCommand("audit", key, "xrevrange", key, end, start, "count", n)
	if err := s.runner.Run(ctx, o); err != nil {
		return nil, "", err
	}
	for i := range o.Reply {
		entry := o.Reply.ListAt(i)
		records = append(records, decodeTrail(entry.TextAt(0), entry.ListAt(1)))
	}
	if len(records) == n {
		next = records[n-1].ID
	}
	return records, next, nil
}

// Names of the stream's fields; people read them with XRANGE as well. Later versions
// may add some.
const (
	trailWho, trailPeer, trailNode, trailMethod, trailResource = "who", "peer", "node", "method", "resource"
	trailNames, trailFields, trailRequest, trailCode           = "names", "fields", "request", "code"
	trailChanged, trailRefused, trailBefore, trailAfter        = "changed", "refused", "before", "after"
	trailSeq, trailVersion, trailHash, trailPrev               = "seq", "chain", "hash", "prev"
	trailKeyID, trailSignature                                 = "key", "signature"
	// trailEnd is how many bytes all records had up to this one. It is no part of the record.
	trailEnd = "end"
)

func encodeBytes(b []byte) string { return base64.RawStdEncoding.EncodeToString(b) }

func decodeBytes(text string) []byte {
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}

func fieldOf(fields runner.Reply, name string) string {
	for i := 0; i+1 < len(fields); i += 2 {
		if fields.TextAt(i) == name {
			return fields.TextAt(i + 1)
		}
	}
	return ""
}

// encodeTrail encodes the fields that are not empty, and returns their size. Lists are joined by line breaks: the items
// of a clipped record contain none.
func encodeTrail(r job.TrailRecord) (out []any, size int64) {
	r = r.Clipped()
	size = trailOverhead
	put := func(name, value string) {
		if value != "" {
			out, size = append(out, name, value), size+int64(len(name)+len(value))
		}
	}
	number := func(name string, n int64) {
		if n != 0 {
			put(name, strconv.FormatInt(n, 10))
		}
	}
	put(trailMethod, r.Method)
	put(trailWho, r.Identity)
	put(trailPeer, r.Peer)
	put(trailNode, r.Node)
	put(trailResource, r.Resource)
	put(trailNames, strings.Join(r.Names, "\n"))
	put(trailFields, strings.Join(r.Fields, "\n"))
	put(trailRequest, r.RequestID)
	number(trailCode, int64(r.Code))
	number(trailChanged, r.Changed)
	number(trailRefused, r.Refused)
	put(trailBefore, hex.EncodeToString(r.Before))
	put(trailAfter, hex.EncodeToString(r.After))
	number(trailSeq, r.Seq)
	number(trailVersion, int64(r.Version))
	put(trailHash, encodeBytes(r.Hash))
	put(trailPrev, encodeBytes(r.Prev))
	put(trailKeyID, r.KeyID)
	put(trailSignature, encodeBytes(r.Signature))
	return out, size
}

// decodeTrail reads what it can. Most fields of an entry that another program wrote are empty.
func decodeTrail(id string, fields runner.Reply) job.TrailRecord {
	m := map[string]string{}
	for i := 0; i+1 < len(fields); i += 2 {
		m[fields.TextAt(i)] = fields.TextAt(i + 1)
	}
	number := func(name string) int64 {
		n, err := strconv.ParseInt(m[name], 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	list := func(name string) []string {
		if m[name] == "" {
			return nil
		}
		return strings.Split(m[name], "\n")
	}
	digest := func(name string) []byte {
		b, err := hex.DecodeString(m[name])
		if err != nil {
			return nil
		}
		return b
	}
	return job.TrailRecord{
		ID: id, AtMS: job.TrailTime(id), Identity: m[trailWho], Peer: m[trailPeer], Node: m[trailNode],
		Method: m[trailMethod], Resource: m[trailResource], Names: list(trailNames), Fields: list(trailFields),
		RequestID: m[trailRequest],
		Code:      int(number(trailCode)), Changed: number(trailChanged), Refused: number(trailRefused),
		Before: digest(trailBefore), After: digest(trailAfter),
		Seq: trailNumber(m[trailSeq]), Version: int(number(trailVersion)), Hash: decodeBytes(m[trailHash]),
		Prev:  decodeBytes(m[trailPrev]),
		KeyID: m[trailKeyID], Signature: decodeBytes(m[trailSignature]),
	}.Clipped()
}
