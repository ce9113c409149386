package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisacl"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// ErrDenied says that the user lacks a right that is needed.
var ErrDenied = errors.New("the Redis user lacks a right")

// CodeGrant is the code of findings about rights that the user lacks.
const CodeGrant = "grant"

// grantKey is a key that only the check of rights touches, and leaves empty.
func grantKey(prefix string) string { return keyspaceKey(prefix) + ":grant" }

// checkGrant finds the commands that the user may not run, before one of them fails in
// the midst of work: of a command inside a script the server's own answer would not say which it was. In a Redis
// Cluster, where each server has users of its own, it asks a server for each shard once they are known.
func (s *Store) checkGrant(ctx context.Context) error {
	if s.embedded {
		return nil
	}
	refused, err := s.refusedScripted(ctx, redisacl.Scripted())
	if err != nil {
		return err
	}
	direct, err := s.refusedDirect(ctx)
	if err != nil {
		return err
	}
	if refused = append(refused, direct...); len(refused) > 0 {
		return fmt.Errorf("%w to run %s", ErrDenied, strings.Join(refused, ", "))
	}
	return nil
}

// explainCensus says of a census that was refused which commands the user may not run.
func (s *Store) explainCensus(ctx context.Context, err error) error {
	if s.embedded || !denied(err) {
		return err
	}
	refused, failed := s.refusedScripted(ctx, redisacl.Measures())
	if failed == nil && len(refused) > 0 {
		err = fmt.Errorf("%w to run %s", ErrDenied, strings.Join(refused, ", "))
		s.refusal.Store(&err) // in the place of one that does not say which command it was
	}
	return ExplainDenied(s.aboutGrant(), err)
}

// refusedScripted are those of some commands that scripts may not call.
func (s *Store) refusedScripted(ctx context.Context, commands []string) (refused []string, err error) {
	var names []any
	for _, name := range commands {
		names = append(names, name)
	}
	ops := []*op{call(s.scripts.grant, noShard, []string{grantKey(s.prefix)}, names)}
	for _, key := range s.serverKeys(ctx) {
		ops = append(ops, call(s.scripts.grant, noShard, []string{key}, names))
	}
	if err := s.perform(ctx, ops...); err != nil {
		return nil, err
	}
	for _, o := range ops {
		for _, name := range o.reply.texts() {
			if !slices.Contains(refused, name) {
				refused = append(refused, name)
			}
		}
	}
	if slices.Contains(refused, "del") {
		// Without it the key keeps a value of one type, which fails commands of other types as well.
		return []string{"del"}, nil
	}
	return refused, nil
}

// serverKeys are keys like grantKey, one on each server of a Redis Cluster that has shards.
func (s *Store) serverKeys(ctx context.Context) (keys []string) {
	if _, cluster := s.client.(*redis.ClusterClient); !cluster {
		return nil
	}
	ops := make([]*op, len(s.shards))
	for i, k := range s.shards {
		ops[i] = command("grant", k.meta+":grant")
	}
	groups := s.byServer(ctx, ops)
	delete(groups, nil) // what cannot be reached, other looks say
	for _, group := range groups {
		keys = append(keys, group[0].keys[0])
	}
	return keys
}

// refusedDirect are the commands that the node may not send, of those that it may first need when
// it is too late: EVAL is sent when a server has lost its scripts, HSCAN when somebody lists jobs.
func (s *Store) refusedDirect(ctx context.Context) (refused []string, err error) {
	key := grantKey(s.prefix) + ":none" // the other key has something in it where the user may not run DEL
	probes := []*op{command("hscan", key, "hscan", key, 0)}
	if s.scripts.grant.function == "" {
		probes = append(probes, command("eval", key, "eval", "return 1", 1, key))
	}
	if s.durability == conn.DurabilityReplica {
		probes = append(probes, command("wait", key, "wait", 0, 1))
	}
	for _, o := range probes {
		err := s.perform(ctx, o)
		switch {
		case err == nil:
		case denied(err):
			refused = append(refused, o.name)
		default:
			return nil, err
		}
	}
	return refused, nil
}

// deniedCommand finds the command in what Redis says of one that the user may not run.
var deniedCommand = regexp.MustCompile(`run the '([a-z|]+)' command`)

// denied reports whether an error is of a user that is unknown or lacks a right.
func denied(err error) bool {
	return err != nil && (errors.Is(err, ErrDenied) || rediserr.Classify(err).Kind == rediserr.KindDenied)
}

// deniedKey finds what Redis says, in each of its versions, of keys that the user may not use.
var deniedKey = regexp.MustCompile(`access (a key|one of the keys|at least one of the keys)`)

// ExplainDenied says of a refusal which right to give to whom.
func ExplainDenied(o Options, err error) error {
	if !denied(err) {
		return err
	}
	more := ""
	if o.Functions {
		more = " --functions"
	}
	return fmt.Errorf("%w; %sthe keys are those that begin with %q: `fermata redis acl --keyspace %s%s` prints all rights, %s tells more",
		err, missingRule(userOf(o.Client), o.Prefix, err.Error()), o.Prefix+":{", o.Prefix, more, redisacl.Doc)
}

// missingRule is the command that gives the user what a refusal says it lacks; empty if that
// cannot be told.
func missingRule(user, prefix, refusal string) string {
	var rules []string
	_, list, found := strings.Cut(refusal, ErrDenied.Error()+" to run ")
	switch {
	case found:
		for _, name := range strings.Split(list, ", ") {
			rules = append(rules, "+"+name)
		}
	case deniedKey.MatchString(refusal):
		rules = []string{"~" + prefix + ":{*"}
	default:
		if m := deniedCommand.FindStringSubmatch(refusal); m != nil {
			rules = []string{"+" + m[1]}
		}
	}
	if len(rules) == 0 {
		return ""
	}
	return fmt.Sprintf("give it by `ACL SETUSER %s %s` on every server of Redis, and in its ACL file or configuration; ", user, strings.Join(rules, " "))
}

// userOf is the user as whom a client logs in.
func userOf(c redis.UniversalClient) string {
	name := ""
	switch c := c.(type) {
	case *redis.Client:
		name = c.Options().Username
	case *redis.ClusterClient:
		name = c.Options().Username
	}
	return cmp.Or(name, "default")
}

// refused keeps what Redis has refused for want of a right.
func (s *Store) refused(err error) {
	if s.refusal.Load() == nil {
		s.refusal.Store(&err)
	}
}

// Refusal is what Redis has refused for want of a right since Refusal was called last; nil for nothing. What the
// user may do can be changed while the node runs.
func (s *Store) Refusal() error {
	if err := s.refusal.Swap(nil); err != nil {
		return ExplainDenied(s.aboutGrant(), *err)
	}
	return nil
}

// aboutGrant are the options that ExplainDenied needs.
func (s *Store) aboutGrant() Options {
	return Options{Client: s.client, Prefix: s.prefix, Functions: s.scripts.grant.function != ""}
}

// ErrFunctions says that a server lacks the functions of this version.
var ErrFunctions = errors.New("the functions of this version are not loaded")

// explainMissing says of a function that is not there what to do about it.
func explainMissing(err error) error {
	if err == nil || rediserr.Classify(err).Kind != rediserr.KindNoFunction {
		return err
	}
	return fmt.Errorf("%w on every primary of Redis: library %s: `fermata redis functions --load` does it, %s tells more (%w)",
		ErrFunctions, Library().Name, redisacl.Doc, err)
}
