package conn

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/redis/redisacl"
)

// codeAOFReplay is the code of findings about loading the append-only file.
const codeAOFReplay = "default_user"

// aofReplay is whether a server can load its append-only file. Writes of a script are a transaction in that
// file. A server replays it at its start as the default user. Most versions silently skip commands that
// this user may not run: Redis before 8.6 (issue 14541), Valkey before 2026 (issue 3983). With "user
// default off" in the configuration, which also removes all permissions, everything that scripts have
// written is lost.
type aofReplay struct {
	refusedCommand string // the first command that the default user may not run; "" for none
	askError       error  // why it is unknown
}

// checkAOFReplay tests the commands by ACL DRYRUN, which runs none of them.
func checkAOFReplay(ctx context.Context, c redis.UniversalClient, prefix string) (aofReplay, error) {
	commands := redisacl.ReplayCommands(prefix)
	replies, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, command := range commands {
			p.Do(ctx, append([]any{"acl", "dryrun", "default"}, command...)...)
		}
		return nil
	})
	var refusal redis.Error
	switch {
	case errors.As(err, &refusal):
		return aofReplay{askError: err}, nil
	case err != nil:
		return aofReplay{}, err
	}
	for i, r := range replies {
		if text, err := r.(*redis.Cmd).Text(); err != nil || text != "OK" {
			return aofReplay{refusedCommand: fmt.Sprint(commands[i][0])}, nil
		}
	}
	return aofReplay{}, nil
}

func (r aofReplay) finding(addr string) (Finding, bool) {
	switch {
	case r.refusedCommand != "":
		return Finding{Fatal, codeAOFReplay, addr, fmt.Sprintf(
			"Redis forgets at its next start what scripts have written, which is all jobs: its default user may not run %s. "+
				"Give it all rights, and let nobody be it: ACL SETUSER default reset off +@all ~*, "+
				"or %q in its configuration; see %s",
			r.refusedCommand, redisacl.DefaultUser, redisacl.Doc)}, true
	case r.askError != nil:
		return Finding{Info, codeAOFReplay, addr, fmt.Sprintf(
			"whether Redis can load its append-only file is not known: it has to be asked by ACL DRYRUN (%v); see %s",
			r.askError, redisacl.Doc)}, true
	}
	return Finding{}, false
}
