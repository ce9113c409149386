package redisstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/job"
)

// trailKey is the stream of audit records. Like the keyspace it belongs to no shard.
func trailKey(prefix string) string { return keyspaceKey(prefix) + ":audit" }

// AppendTrail adds audit records to the stream of the keyspace, which keeps about the
// last keep ones. A record whose answer was lost may be there twice.
func (s *Store) AppendTrail(ctx context.Context, records []job.TrailRecord, keep int) error {
	ops := make([]*op, len(records))
	key := trailKey(s.prefix)
	for i, r := range records {
		ops[i] = command("audit", key, append([]any{"xadd", key, "maxlen", "~", keep, "*"}, encodeTrail(r)...)...)
	}
	return s.perform(ctx, ops...)
}

// ReadTrail returns up to n audit records, newest first: from the instant toMS,
// exclusive, or after the record with the id before, to fromMS. Zero values mean no
// bound. next is empty when there are no more.
func (s *Store) ReadTrail(ctx context.Context, before string, fromMS, toMS int64, n int) (records []job.TrailRecord, next string, err error) {
	end, start := "+", "-"
	if toMS > 0 {
		end = fmt.Sprintf("(%d-0", toMS)
	}
	if before != "" {
		end = "(" + before
	}
	if fromMS > 0 {
		start = strconv.FormatInt(fromMS, 10)
	}
	key := trailKey(s.prefix)
	o := command("audit", key, "xrevrange", key, end, start, "count", n)
	if err := s.perform(ctx, o); err != nil {
		return nil, "", err
	}
	for i := range o.reply {
		entry := o.reply.list(i)
		records = append(records, decodeTrail(entry.text(0), entry.list(1)))
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
)

// encodeTrail leaves out what is empty. Lists are joined by line breaks, which names
// and field paths cannot hold.
func encodeTrail(r job.TrailRecord) []any {
	r = r.Clipped()
	var out []any
	put := func(name, value string) {
		if value != "" {
			out = append(out, name, value)
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
	return out
}

// decodeTrail reads what it can: an entry that somebody else put there shows as a
// record of little.
func decodeTrail(id string, fields reply) job.TrailRecord {
	m := map[string]string{}
	for i := 0; i+1 < len(fields); i += 2 {
		m[fields.text(i)] = fields.text(i + 1)
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
	ms, _, _ := strings.Cut(id, "-")
	at, _ := strconv.ParseInt(ms, 10, 64) // Redis made it
	return job.TrailRecord{
		ID: id, AtMS: at, Identity: m[trailWho], Peer: m[trailPeer], Node: m[trailNode], Method: m[trailMethod],
		Resource: m[trailResource], Names: list(trailNames), Fields: list(trailFields), RequestID: m[trailRequest],
		Code: int(number(trailCode)), Changed: number(trailChanged), Refused: number(trailRefused),
		Before: digest(trailBefore), After: digest(trailAfter),
	}.Clipped()
}
