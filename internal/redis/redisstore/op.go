package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// op is one command or script call, with what became of it.
type op struct {
	shard  int // of the script; the keyspace's own script has noShard
	name   string
	script *script
	keys   []string // all in one slot; the first one routes the op
	argv   []any    // of the script, after the common ones
	plain  []any    // the whole command, when there is no script
	// joins: it may share a pipeline with calls of other callers, which ends when it ends.
	joins bool
	// once: it is not repeated after an error that leaves open whether the server works on it.
	once bool
	// latestAt is the place in argv of Store.latest, which each try sets; 0 when the
	// script may be late.
	latestAt int

	reply reply
	lagMS int64 // of the shard's clock
	err   error
	// uncertain: an earlier try may have taken effect without an answer.
	uncertain bool
}

const noShard = -1

// command is an op that is no script; key routes it.
func command(name, key string, args ...any) *op {
	return &op{shard: noShard, name: name, keys: []string{key}, plain: args}
}

// call is an op that runs a script of a shard.
func call(s *script, shard int, keys []string, argv []any) *op {
	return &op{shard: shard, name: s.name, script: s, keys: keys, argv: argv}
}

// args is the command as sent, in memory of the room. Scripts go by their hash, or whole
// if the server does not know it; as functions by their name.
func (o *op) args(room *argRoom, common []any, whole bool) []any {
	if o.script == nil {
		return o.plain
	}
	a := room.take(3 + len(o.keys) + len(common) + len(o.argv))
	switch {
	case o.script.function != "":
		a = append(a, "fcall", o.script.function)
	case whole:
		a = append(a, "eval", o.script.source)
	default:
		a = append(a, "evalsha", o.script.sha)
	}
	a = append(a, len(o.keys))
	for _, k := range o.keys {
		a = append(a, k)
	}
	if o.script.sharded {
		a = append(a, common...)
	}
	return append(a, o.argv...)
}

// joins tells whether all of ops may share a pipeline with others.
func joins(ops []*op) bool {
	return !slices.ContainsFunc(ops, func(o *op) bool { return !o.joins })
}

func (o *op) mutates() bool { return o.script != nil && o.script.mutates }

// take reads the answer of a command. One that has neither answer nor error was
// never sent: the server refused the connection itself, which is the error of the
// whole pipeline.
func (o *op) take(cmd *redis.Cmd, pipeline error) {
	o.reply = nil
	value, err := cmd.Result()
	if value == nil && err == nil {
		err = cmp.Or(pipeline, rediserr.ErrNoAnswer)
	}
	switch {
	case errors.Is(err, redis.Nil):
		o.err = nil
		return
	case err != nil:
		o.err = err
		return
	}
	o.err = nil
	if list, ok := value.([]any); ok {
		o.reply = list
	} else {
		o.reply = reply{value}
	}
}

// refusal is the error that the code of a script's answer stands for.
func (o *op) refusal() error {
	switch code := o.reply.int(0); code {
	case 0:
		return nil
	case 1:
		return job.ErrClockJump
	case 2:
		return job.ErrNotHolder
	case 4:
		return rediserr.ErrLate
	case 3:
		return fmt.Errorf("%w: shard %d has another kind of clock", rediserr.ErrKeyspace, o.shard)
	default:
		return fmt.Errorf("%w: answer %d", codec.ErrCorrupt, code)
	}
}

// reply is the answer of a script. Reading what is not there gives zero.
type reply []any

func (r reply) at(i int) any {
	if i < len(r) {
		return r[i]
	}
	return nil
}

func (r reply) int(i int) int64 {
	n, _ := r.at(i).(int64)
	return n
}

func (r reply) text(i int) string {
	s, _ := r.at(i).(string)
	return s
}

// has tells whether there is a text; a missing field of a hash is none.
func (r reply) has(i int) bool {
	_, ok := r.at(i).(string)
	return ok
}

func (r reply) list(i int) reply {
	l, _ := r.at(i).([]any)
	return l
}

// clock is what the script of a shard says of its clock: what it shows, and by how much it
// lags. Only the first is left in the answer.
func (r reply) clock() (us, lagMS int64) {
	clock, lag, lags := strings.Cut(r.text(1), " ")
	if !lags {
		return r.int(1), 0
	}
	us, _ = strconv.ParseInt(clock, 10, 64)
	lagMS, _ = strconv.ParseInt(lag, 10, 64)
	r[1] = us
	return us, lagMS
}

// texts are all texts of the answer.
func (r reply) texts() []string {
	out := make([]string, 0, len(r))
	for i := range r {
		out = append(out, r.text(i))
	}
	return out
}

// records is texts of ids of records.
func (r reply) records() []job.RecordID {
	out := make([]job.RecordID, 0, len(r))
	for i := range r {
		out = append(out, job.RecordID(r.text(i)))
	}
	return out
}

// firstError is the first error among ops.
func firstError(ops []*op) error {
	for _, o := range ops {
		if o.err != nil {
			return o.err
		}
	}
	return nil
}

// commonArgs are the arguments that every script of a shard takes.
func (s *Store) commonArgs(shard int) []any {
	most, least := s.clocks[shard].arguments(s.now())
	virtual := ""
	if s.virtual != nil {
		most, least = 0, min(least, 0) // the caller says what time it is, and may leap
		virtual = strconv.FormatInt(max(0, s.virtual()), 10)
	}
	return []any{most, least, virtual}
}

// latest is the instant by the shard's clock after which nobody waits for the answer
// to a call that is sent now; 0 when nobody knows that clock.
func (s *Store) latest(shard int) int64 {
	clock := s.clocks[shard].expect(s.now())
	if s.virtual != nil {
		clock = s.clocks[shard].virtual(max(0, s.virtual()))
	}
	if clock == 0 {
		return 0
	}
	return clock + s.patience.Milliseconds()
}

// perform runs ops and wraps their errors.
func (s *Store) perform(ctx context.Context, ops ...*op) error {
	s.run(ctx, ops)
	for _, o := range ops {
		o.err = rediserr.Wrap(o.name, o.err)
	}
	return firstError(ops)
}
