package redisstore

import (
	"context"
	"fmt"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"strconv"
)

// Check is Preflight for a store that is open, to be repeated while running. It
// also looks whether the keyspace is still the one that was opened, whether the user still has the
// rights that are needed, and changes nothing: only [Open] creates a keyspace.
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
	if denied(err) {
		report.Add(conn.Finding{Severity: conn.Fatal, Code: CodeGrant, Text: ExplainDenied(s.aboutGrant(), err).Error()})
		err = nil
	}
	if err != nil {
		return conn.Report{}, err
	}
	return report, nil
}

// checkKeyspace looks whether the keyspace is the one that was opened.
func (s *Store) checkKeyspace(ctx context.Context, report *conn.Report) error {
	key := keyspaceKey(s.prefix)
	stored := command("hmget", key, "hmget", key, "shards", "schema", "virtual", identityField)
	if err := s.perform(ctx, stored); err != nil {
		return err
	}
	if text := s.judgeKeyspace(stored.reply); text != "" {
		report.Add(conn.Finding{Severity: conn.Fatal, Code: "keyspace", Text: text})
	} else if id := stored.reply.text(3); id != "" {
		s.identity.Store(&id) // which had no room for it before
	}
	return nil
}

// CheckSchema fails with ErrSchema when the schema of the keyspace has been raised
// above what this version knows since it was opened. From then on records are written
// as the schema has it. It fails with ErrKeyspaceGone when there is no schema any more, or
// another keyspace has taken the place of the one that was opened. It costs one small read.
func (s *Store) CheckSchema(ctx context.Context) error {
	key := keyspaceKey(s.prefix)
	stored := command("hmget", key, "hmget", key, "schema", identityField)
	if err := s.perform(ctx, stored); err != nil {
		return err
	}
	schema, err := strconv.Atoi(stored.reply.text(0))
	switch {
	case err != nil || s.replaced(stored.reply.text(1)): // Check says what to do about it
		return rediserr.ErrKeyspaceGone
	case schema > SchemaVersion:
		return laterSchema(stored.reply.text(0))
	default:
		s.schema.Store(int32(schema))
	}
	return nil
}

// replaced reports whether this is the id of another keyspace than the one that was opened. One
// that a version without ids has made or restored has none, which proves nothing.
func (s *Store) replaced(id string) bool {
	opened := s.Identity()
	return id != "" && opened != "" && id != opened
}

func laterSchema(stored string) error {
	return fmt.Errorf("%w: version %s, this binary knows %d: run a newer version", rediserr.ErrSchema, stored, SchemaVersion)
}

// judgeKeyspace says what is wrong with the hash of the keyspace as it is stored
// now, and nothing when it is what was opened.
func (s *Store) judgeKeyspace(stored reply) string {
	key, virtual := keyspaceKey(s.prefix), "0"
	if s.virtual != nil {
		virtual = "1"
	}
	if !stored.has(0) {
		return fmt.Sprintf("the keyspace is gone: Redis has lost the hash %s, and most likely all jobs with it; "+
			"stop all nodes, then restore the backup of Redis, or delete what is left under %q and start them with --shards %d",
			key, s.prefix+":", len(s.shards))
	}
	if stored.text(0) != strconv.Itoa(len(s.shards)) || stored.text(2) != virtual {
		return fmt.Sprintf("the keyspace was replaced while this node was running: hash %s now says %q shards and a %s clock, "+
			"it was opened with %d and a %s clock; stop all nodes, restore the backup of Redis or decide for one --shards, and start them again",
			key, stored.text(0), clockName(stored.text(2)), len(s.shards), clockName(virtual))
	}
	if s.replaced(stored.text(3)) {
		return fmt.Sprintf("the keyspace was replaced while this node was running: hash %s has another id; "+
			"stop all nodes, restore the backup of Redis or keep what is there, and start them again", key)
	}
	if schema, err := strconv.Atoi(stored.text(1)); err != nil || schema > SchemaVersion {
		return laterSchema(stored.text(1)).Error()
	}
	return ""
}
