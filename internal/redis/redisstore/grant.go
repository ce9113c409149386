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
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// ErrDenied means that the Redis user lacks a permission that is needed.
var ErrDenied = errors.New("the Redis user lacks a right")

// CodeGrant is the code of findings about missing permissions.
const CodeGrant = "grant"

// grantKey is a key that only the check of permissions uses, and leaves empty.
func grantKey(prefix string) string { return runner.KeyspaceKey(prefix) + ":grant" }

// checkGrant finds commands that the user may not run, before one of them fails during work: the error
// of a script does not name the command that failed. In a Redis Cluster each server has its own users,
// so it checks each server that has shards.
func (s *Store) checkGrant(ctx context.Context) error {
	if s.checks.Embedded {
		return nil
	}
	refused, err := s.deniedInScripts(ctx, redisacl.ScriptCommands())
	if err != nil {
		return err
	}
	direct, err := s.deniedCommands(ctx)
	if err != nil {
		return err
	}
	refused = append(refused, direct...)
	if len(refused) > 0 {
		return fmt.Errorf("%w to run %s", ErrDenied, strings.Join(refused, ", "))
	}
	return nil
}

// explainCensusDenial names the commands that the user may not run, if a census was denied.
func (s *Store) explainCensusDenial(ctx context.Context, err error) error {
	if s.checks.Embedded || !isDenied(err) {
		return err
	}
	refused, failed := s.deniedInScripts(ctx, redisacl.ByteLimitCommands())
	if failed == nil && len(refused) > 0 {
		err = fmt.Errorf("%w to run %s", ErrDenied, strings.Join(refused, ", "))
		s.runner.ReplaceDenial(err) // of an error that does not name the command
	}
	return ExplainDenied(s.grantOptions(), err)
}

// deniedInScripts returns the commands that scripts may not call.
func (s *Store) deniedInScripts(ctx context.Context, commands []string) (refused []string, err error) {
	var names []any
	for _, name := range commands {
		names = append(names, name)
	}
	ops := []*runner.Op{runner.NewScriptCall(s.scripts.grant, runner.NoShard, []string{grantKey(s.prefix)}, names)}
	for _, key := range s.serverKeys(ctx) {
		ops = append(ops, runner.NewScriptCall(s.scripts.grant, runner.NoShard, []string{key}, names))
	}
	if err := s.runner.Run(ctx, ops...); err != nil {
		return nil, err
	}
	for _, o := range ops {
		for _, name := range o.Reply.Texts() {
			if !slices.Contains(refused, name) {
				refused = append(refused, name)
			}
		}
	}
	if slices.Contains(refused, "del") {
		// Without DEL the key keeps a value of one type, so that commands of other types fail as well.
		return []string{"del"}, nil
	}
	return refused, nil
}

// serverKeys returns a key like grantKey for each server of a Redis Cluster that has shards. Other checks
// report unreachable servers.
func (s *Store) serverKeys(ctx context.Context) []string {
	keys := make([]string, len(s.shards))
	for i, k := range s.shards {
		keys[i] = k.Meta + ":grant"
	}
	return s.runner.KeyOfEachServer(ctx, keys)
}

// deniedCommands returns the commands that the node may not send, among those that it needs only later:
// EVAL after a server has lost its scripts, HSCAN when jobs are listed.
func (s *Store) deniedCommands(ctx context.Context) (refused []string, err error) {
	key := grantKey(s.prefix) + ":none" // grantKey has a value if the user may not run DEL
	probes := []*runner.Op{runner.NewCommand("hscan", key, "hscan", key, 0)}
	if s.scripts.grant.Function == "" {
		probes = append(probes, runner.NewCommand("eval", key, "eval", "return 1", 1, key))
	}
	if s.checks.Durability == conn.DurabilityReplica {
		probes = append(probes, runner.NewCommand("wait", key, "wait", 0, 1))
	}
	for _, o := range probes {
		err := s.runner.Run(ctx, o)
		switch {
		case err == nil:
		case isDenied(err):
			refused = append(refused, o.Name)
		default:
			return nil, err
		}
	}
	return refused, nil
}

// deniedCommandPattern finds the command in an error about a denied command.
var deniedCommandPattern = regexp.MustCompile(`run the '([a-z|]+)' command`)

// isDenied reports whether an error means that the user is unknown or lacks a permission.
func isDenied(err error) bool {
	return err != nil && (errors.Is(err, ErrDenied) || rediserr.Classify(err).Kind == rediserr.KindDenied)
}

// deniedKeyPattern matches errors of all Redis versions about denied keys.
var deniedKeyPattern = regexp.MustCompile(`access (a key|one of the keys|at least one of the keys)`)

// ExplainDenied adds to an error about a missing permission how to grant it.
func ExplainDenied(o Options, err error) error {
	if !isDenied(err) {
		return err
	}
	more := ""
	if o.Functions {
		more = " --functions"
	}
	return fmt.Errorf("%w; %sthe keys are those that begin with %q: "+
		"`fermata redis acl --keyspace %s%s` prints all rights, %s tells more",
		err, missingRule(userOf(o.Client), o.Prefix, err.Error()), o.Prefix+":{", o.Prefix, more, redisacl.Doc)
}

// missingRule is the command that grants the permission that an error is about; "" if the error does not
// name it.
func missingRule(user, prefix, refusal string) string {
	var rules []string
	_, list, found := strings.Cut(refusal, ErrDenied.Error()+" to run ")
	switch {
	case found:
		for _, name := range strings.Split(list, ", ") {
			rules = append(rules, "+"+name)
		}
	case deniedKeyPattern.MatchString(refusal):
		rules = []string{"~" + prefix + ":{*"}
	default:
		if m := deniedCommandPattern.FindStringSubmatch(refusal); m != nil {
			rules = []string{"+" + m[1]}
		}
	}
	if len(rules) == 0 {
		return ""
	}
	return fmt.Sprintf("give it by `ACL SETUSER %s %s` on every server of Redis, and in its ACL file or configuration; ",
		user, strings.Join(rules, " "))
}

// userOf is the user name of a client.
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

// Refusal returns the first error about a missing permission since the last call of Refusal; nil if there
// was none. Permissions may change while the node runs.
func (s *Store) Refusal() error {
	return ExplainDenied(s.grantOptions(), s.runner.TakeDenial())
}

// grantOptions are the options that ExplainDenied needs.
func (s *Store) grantOptions() Options {
	return Options{Client: s.client, Prefix: s.prefix, Functions: s.scripts.grant.Function != ""}
}

// ErrFunctions means that a server lacks the functions of this version.
var ErrFunctions = errors.New("the functions of this version are not loaded")

// explainMissingFunction adds to an error about a missing function how to load it.
func explainMissingFunction(err error) error {
	if err == nil || rediserr.Classify(err).Kind != rediserr.KindNoFunction {
		return err
	}
	return fmt.Errorf("%w on every primary of Redis: library %s: "+
		"`fermata redis functions --load` does it, %s tells more (%w)",
		ErrFunctions, Library().Name, redisacl.Doc, err)
}
