package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Check is [conn.Preflight] for an open store, to be repeated while running. It also checks that the
// keyspace is still the one that was opened and that the user still has its permissions. It changes
// nothing: only [Open] creates a keyspace.
func (s *Store) Check(ctx context.Context) (conn.Report, error) {
	report, err := conn.Preflight(ctx, s.checks)
	if err == nil {
		err = s.checkKeyspace(ctx, &report)
	}
	if err == nil {
		err = s.checkGrant(ctx)
	}
	if isDenied(err) {
		report.Add(conn.Finding{Severity: conn.Fatal, Code: CodeGrant,
			Text: ExplainDenied(s.grantOptions(), err).Error()})
		err = nil
	}
	if err != nil {
		return conn.Report{}, err
	}
	return report, nil
}

// checkKeyspace adds a finding if the keyspace is not the one that was opened.
func (s *Store) checkKeyspace(ctx context.Context, report *conn.Report) error {
	key := runner.KeyspaceKey(s.prefix)
	stored := runner.NewCommand("hmget", key, "hmget", key, "shards", "schema", "virtual", identityField)
	if err := s.runner.Run(ctx, stored); err != nil {
		return err
	}
	if text := s.describeKeyspaceFault(stored.Reply); text != "" {
		report.Add(conn.Finding{Severity: conn.Fatal, Code: "keyspace", Text: text})
	} else if id := stored.Reply.TextAt(3); id != "" {
		s.identity.Store(&id) // a full server could not store it before
	}
	return nil
}

// CheckSchema fails with ErrSchema when the schema of the keyspace has been raised
// above what this version knows since it was opened. From then on records are written
// as the schema has it. It fails with ErrKeyspaceGone when there is no schema any more, or
// another keyspace has taken the place of the one that was opened. It costs one small read.
func (s *Store) CheckSchema(ctx context.Context) error {
	key := runner.KeyspaceKey(s.prefix)
	stored := runner.NewCommand("hmget", key, "hmget", key, "schema", identityField)
	if err := s.runner.Run(ctx, stored); err != nil {
		return err
	}
	schema, err := strconv.Atoi(stored.Reply.TextAt(0))
	switch {
	case err != nil || s.isOtherKeyspace(stored.Reply.TextAt(1)): // Check reports what to do
		return rediserr.ErrKeyspaceGone
	case schema > SchemaVersion:
		return laterSchemaError(stored.Reply.TextAt(0))
	default:
		s.schema.Store(int32(schema))
	}
	return nil
}

// isOtherKeyspace reports whether this is the id of another keyspace than the one that was opened. A
// keyspace from a version without ids has none, which proves nothing.
func (s *Store) isOtherKeyspace(id string) bool {
	opened := s.Identity()
	return id != "" && opened != "" && id != opened
}

func laterSchemaError(stored string) error {
	return fmt.Errorf("%w: version %s, this binary knows %d: run a newer version",
		rediserr.ErrSchema, stored, SchemaVersion)
}

// describeKeyspaceFault compares the stored hash of the keyspace with the one that was opened; "" if they
// agree.
func (s *Store) describeKeyspaceFault(stored runner.Reply) string {
	key, virtual := runner.KeyspaceKey(s.prefix), "0"
	if s.runner.Virtual() {
		virtual = "1"
	}
	if !stored.HasTextAt(0) {
		return fmt.Sprintf("the keyspace is gone: Redis has lost the hash %s, and most likely all jobs with it; "+
			"stop all nodes, then restore the backup of Redis, or delete what is left under %q and start them with --shards %d",
			key, s.prefix+":", len(s.shards))
	}
	if stored.TextAt(0) != strconv.Itoa(len(s.shards)) || stored.TextAt(2) != virtual {
		return fmt.Sprintf("the keyspace was replaced while this node was running: hash %s now says "+
			"%q shards and a %s clock, it was opened with %d and a %s clock; stop all nodes, "+
			"restore the backup of Redis or decide for one --shards, and start them again",
			key, stored.TextAt(0), clockName(stored.TextAt(2)), len(s.shards), clockName(virtual))
	}
	if s.isOtherKeyspace(stored.TextAt(3)) {
		return fmt.Sprintf("the keyspace was replaced while this node was running: hash %s has another id; "+
			"stop all nodes, restore the backup of Redis or keep what is there, and start them again", key)
	}
	if schema, err := strconv.Atoi(stored.TextAt(1)); err != nil || schema > SchemaVersion {
		return laterSchemaError(stored.TextAt(1)).Error()
	}
	return ""
}
