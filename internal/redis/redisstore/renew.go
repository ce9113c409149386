package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Renew has leases end a TTL from now, most often later than they would have: one script for up to 500 leases of a
// shard, all in one pipeline for each server. A reply whose Err is job.ErrDurability is complete; with any other Err it
// is empty, and the request may be repeated.
func (s *Store) Renew(ctx context.Context, requests []job.RenewRequest) []job.RenewReply {
	replies := make([]job.RenewReply, len(requests))
	parts := make([][]*runner.Op, len(requests))
	var ops []*runner.Op
	for i, r := range requests {
		replies[i].Err = validateRenewRequest(r, len(s.shards))
		if replies[i].Err != nil {
			continue
		}
		for rest := r.Renewals; len(rest) > 0; {
			n := min(len(rest), applyItems)
			parts[i] = append(parts[i], s.renewOp(r, rest[:n]))
			rest = rest[n:]
		}
		ops = append(ops, parts[i]...)
	}
	s.runner.RunEach(ctx, ops)
	for i := range requests {
		if replies[i].Err == nil {
			replies[i] = readRenew(parts[i])
		}
	}
	return replies
}

func validateRenewRequest(r job.RenewRequest, shards int) error {
	if r.Shard < 0 || r.Shard >= shards || r.TTL <= 0 {
		return fmt.Errorf("renew: shard %d of %d, TTL %v", r.Shard, shards, r.TTL)
	}
	for _, n := range r.Renewals {
		if n.Epoch > job.MaxEpoch || n.Token > codec.MaxToken {
			return fmt.Errorf("renew %s: epoch %d or token %d is out of range", n.Record, n.Epoch, n.Token)
		}
	}
	return nil
}

func (s *Store) renewOp(r job.RenewRequest, renewals []job.Renewal) *runner.Op {
	keys := s.shards[r.Shard]
	names := []string{keys.Meta, keys.State}
	lanes := newLaneKeys(keys, len(names))
	argv := make([]any, 0, 1+6*len(renewals))
	argv = append(argv, r.TTL.Milliseconds())
	for _, n := range renewals {
		s.runner.ObserveToken(r.Shard, n.Token)
		argv = append(argv, string(n.Record), lanes.placeOf(n.Lane), codec.FixedWidth(n.Token, 16),
			codec.FixedWidth(uint64(n.Epoch), 6),
			runner.FlagText(n.Acked), int64(max(0, n.HardStopMS)))
	}
	return runner.NewScriptCall(s.scripts.renew, r.Shard, lanes.appendKeysTo(names), argv)
}

// readRenew takes over the answers: {code, clock, codes, revisions}.
func readRenew(parts []*runner.Op) job.RenewReply {
	var out job.RenewReply
	for _, o := range parts {
		if err := rediserr.Wrap("renew", o.Err); err != nil {
			out.Err = err
			if !errors.Is(err, job.ErrDurability) {
				return job.RenewReply{Err: err}
			}
		}
		out.NowUS = max(out.NowUS, unixtime.Micro(o.Reply.IntAt(1)))
		revisions := o.Reply.ListAt(3)
		for i, code := range []byte(o.Reply.TextAt(2)) {
			out.Results = append(out.Results, job.RenewResult{
				Code: job.RenewCode(code - '0'), Revision: uint32(revisions.IntAt(i)),
			})
		}
	}
	return out
}
