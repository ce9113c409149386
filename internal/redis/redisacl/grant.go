package redisacl

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Doc is the operators' documentation of the grant.
const Doc = "docs/security/redis.md"

// MaxKeyspace is the maximum length of a keyspace's name, in bytes.
const MaxKeyspace = 128

// callCommands are the commands that call scripts: sent by the node, or as functions that an operator has
// loaded.
func callCommands(functions bool) []string {
	if functions {
		return []string{"fcall"}
	}
	return []string{"eval", "evalsha"}
}

// directCommands are commands that no script calls.
var directCommands = []string{
	"ping", "client|setname", "info", "wait", "hscan",
	"select",                             // only with a database other than 0
	"cluster|slots", "command", "asking", // only in a Redis Cluster
	"acl|dryrun", // for [ReplayCommands], as the default user, if there is an append-only file
}

// DefaultUser is the rule for the built-in user, as which nobody should log in. It keeps its permissions
// although logins are disabled: at its start a server replays the effects of scripts in its append-only file as
// this user, and drops commands without permission.
const DefaultUser = "user default reset off +@all ~*"

// ReplayCommands are the commands of scripts that an append-only file may contain, with arguments that match a key of
// a keyspace: write commands, PEXPIREAT for PEXPIRE, and UNLINK for expired keys.
func ReplayCommands(keyspace string) [][]any {
	var all [][]any
	for _, c := range [][]any{
		{"set", "", ""}, {"del", ""}, {"mset", "", ""}, {"msetnx", "", ""}, {"pexpireat", "", "1"},
		{"hset", "", "f", ""}, {"hdel", "", "f"},
		{"zadd", "", "1", "m"}, {"zrem", "", "m"}, {"xadd", "", "*", "f", ""}, {"unlink", ""},
	} {
		c[1] = keyspace + ":{0}:x"
		all = append(all, c)
	}
	return all
}

// scriptedCommands are commands that scripts call, also if they are sent directly as well. Redis checks the
// permissions of both.
var scriptedCommands = []string{
	"time",
	"get", "set", "del", "mget", "mset", "msetnx", "getrange", "pexpire", "pttl",
	"hget", "hmget", "hset", "hdel", "hlen", "hgetall",
	"zadd", "zrem", "zrange", "zscore", "zmscore", "zcount", "zcard",
	"xadd", "xrevrange", // of the audit stream as well
}

// eventCommands are the commands that read events.
var eventCommands = []string{"xrange"}

// sizeCommands are the commands that scripts call only if the bytes of namespaces are limited: otherwise nodes
// start without them, with the grant of an earlier version.
var sizeCommands = []string{"hstrlen"}

// sentinelCommands are commands that a client sends to Sentinel. It pings an idle subscription.
var sentinelCommands = []string{
	"ping", "client|setname", "subscribe", "sentinel|get-master-addr-by-name", "sentinel|sentinels",
}

// Commands are the commands of the grant, as ACL rules have them after the '+'. With functions no command loads
// code.
func Commands(functions bool) []string {
	return slices.Concat(callCommands(functions), directCommands, scriptedCommands, eventCommands, sizeCommands)
}

// ScriptCommands are the commands of the grant that scripts call.
func ScriptCommands() []string { return append([]string{}, scriptedCommands...) }

// ByteLimitCommands are the commands of the grant that scripts call only where bytes are limited.
func ByteLimitCommands() []string { return slices.Clone(sizeCommands) }

// UserRules are the rules of a keyspace's user, without name and password, for nodes that call functions or send
// scripts.
func UserRules(keyspace string, functions bool) string {
	return "resetkeys ~" + keyspace + ":{* resetchannels -@all +" + strings.Join(Commands(functions), " +")
}

// SharedRules are Rules for a Redis that others use too. They omit ACL DRYRUN, which reveals the users of the
// server and their permissions. The nodes then cannot check whether Redis can load its append-only file, and log
// that.
func SharedRules(keyspace string, functions bool) string {
	return strings.Replace(UserRules(keyspace, functions), " +acl|dryrun", "", 1)
}

// loaderCommands are the commands of the user that loads the functions: once for each version, and never as the
// user of the nodes.
var loaderCommands = []string{"ping", "client|setname", "function|load", "function|list", "function|delete",
	"cluster|slots", "command"}

// LoaderRules are the rules of the user that loads the functions. It reaches no key.
func LoaderRules() string {
	return "resetkeys resetchannels -@all +" + strings.Join(loaderCommands, " +")
}

// SentinelRules are the rules of the user that Sentinel itself knows.
func SentinelRules() string {
	return "resetkeys resetchannels &+switch-master &+replica-reconf-done -@all +" + strings.Join(sentinelCommands,
		" +")
}

// User is a line for an ACL file: an active user, with the SHA-256 of its password in hexadecimal.
func User(name, passwordSHA256, rules string) string {
	return fmt.Sprintf("user %s reset on #%s %s", name, passwordSHA256, rules)
}

// HashPassword is the form of a password in an ACL file.
func HashPassword(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

// CheckKeyspace validates the name of a keyspace: 1 to 128 letters, digits and any of - _ . : and so no special
// character of a key pattern or a hash tag.
func CheckKeyspace(name string) error {
	if name == "" || len(name) > MaxKeyspace {
		return fmt.Errorf("key prefix of %d bytes: must have 1 to %d", len(name), MaxKeyspace)
	}
	for _, r := range name {
		if !isNameRune(r) && r != ':' {
			return fmt.Errorf("key prefix %.160q: letters, digits and any of - _ . : are allowed", name)
		}
	}
	return nil
}

// CheckUser validates the name of a user: as a keyspace, without ':'.
func CheckUser(name string) error {
	if CheckKeyspace(name) != nil || strings.ContainsRune(name, ':') {
		return fmt.Errorf("user %.160q: must have 1 to %d letters, digits, dots, dashes and underscores", name,
			MaxKeyspace)
	}
	return nil
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
}
