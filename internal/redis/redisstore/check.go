package redisstore

import (
	"context"
	"fmt"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"strconv"
)

// Check is [conn.Preflight] for an open store, to be repeated while running. It also checks that the
// keyspace is still the one that was opened and that the user still has its permissions. It changes
// nothing: only [Open] creates a keyspace.
func (s *Store) Check(ctx context.Context) (conn.Report, error) {
	report, err := conn.Preflight(ctx, conn.PreflightOptions{
		Client: s.client, Prefix: s.prefix, Embedded: s.embedded, Durability: s.durability, Replicas: s.replicas, Timeout: s.opTimeout,
	})
	if err == nil {
		err = s.checkKeyspace(ctx, &report)
	}
	if err == nil {
		err = s.checkGrant(ctx)
	}
	if isDenied(err) {
		report.Add(conn.Finding{Severity: conn.Fatal, Code: CodeGrant, Text: ExplainDenied(s.grantOptions(), err).Error()})
		err = nil
	}
	if err != nil {
		return conn.Report{}, err
	}
	return report, nil
}

// checkKeyspace adds a finding if the keyspace is not the one that was opened.
func (s *Store) checkKeyspace(ctx context.Context, report *conn.Report) error {
	key := keyspaceKey(s.prefix)
	stored := newCommand("hmget", key, "hmget", key, "shards", "schema", "virtual", identityField)
	if err := s.runAndWrap(ctx, stored); err != nil {
		return err
	}
	if text := s.describeKeyspaceFault(stored.reply); text != "" {
		report.Add(conn.Finding{Severity: conn.Fatal, Code: "keyspace", Text: text})
	} else if id := stored.reply.textAt(3); id != "" {
		s.identity.Store(&id) // a full server could not store it before
	}
	return nil
}

// CheckSchema fails with ErrSchema when the schema of the keyspace has been raised
// above what this version knows since it was opened. From then on records are written
// as the schema has it. It fails with ErrKeyspaceGone when there is no schema any more, or
// another keyspace has taken the place of the one that was opened. It costs one small read.
func (s *Store) CheckSchema(ctx context.Context) error {
	key := keyspaceKey(s.prefix)
	stored := newCommand("hmget", key, "hmget", key, "schema", identityField)
	if err := s.runAndWrap(ctx, stored); err != nil {
		return err
	}
	schema, err := strconv.Atoi(stored.reply.textAt(0))
	switch {
	case err != nil || s.isOtherKeyspace(stored.reply.textAt(1)): // Check reports what to do
		return rediserr.ErrKeyspaceGone
	case schema > SchemaVersion:
		return laterSchemaError(stored.reply.textAt(0))
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
	return fmt.Errorf("%w: version %s, this binary knows %d: run a newer version", rediserr.ErrSchema, stored, SchemaVersion)
}

// describeKeyspaceFault compares the stored hash of the keyspace with the one that was opened; "" if they
// agree.
func (s *Store) describeKeyspaceFault(stored reply) string {
	key, virtual := keyspaceKey(s.prefix), "0"
	if s.virtual != nil {
		virtual = "1"
	}
	if !stored.hasTextAt(0) {
		return fmt.Sprintf("the keyspace is gone: Redis has lost the hash %s, and most likely all jobs with it; "+
			"stop all nodes, then restore the backup of Redis, or delete what is left under %q and start them with --shards %d",
			key, s.prefix+":", len(s.shards))
	}
	if stored.textAt(0) != strconv.Itoa(len(s.shards)) || stored.textAt(2) != virtual {
		return fmt.Sprintf("the keyspace was replaced while this node was running: hash %s now says %q shards and a %s clock, "+
			"it was opened with %d and a %s clock; stop all nodes, restore the backup of Redis or decide for one --shards, and start them again",
			key, stored.textAt(0), clockName(stored.textAt(2)), len(s.shards), clockName(virtual))
	}
	if s.isOtherKeyspace(stored.textAt(3)) {
		return fmt.Sprintf("the keyspace was replaced while this node was running: hash %s has another id; "+
			"stop all nodes, restore the backup of Redis or keep what is there, and start them again", key)
	}
	if schema, err := strconv.Atoi(stored.textAt(1)); err != nil || schema > SchemaVersion {
		return laterSchemaError(stored.textAt(1)).Error()
	}
	return ""
}
