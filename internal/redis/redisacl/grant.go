package redisacl

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Doc is where operators read about the grant.
const Doc = "docs/security/redis.md"

// MaxKeyspace is the greatest length of a keyspace's name, in bytes.
const MaxKeyspace = 128

// calls are how scripts are called: brought along, or as functions that an operator
// has loaded.
func calls(functions bool) []string {
	if functions {
		return []string{"fcall"}
	}
	return []string{"eval", "evalsha"}
}

// direct are commands that no script calls.
var direct = []string{
	"ping", "client|setname", "info", "wait", "hscan",
	"select",                             // only with a database other than 0
	"cluster|slots", "command", "asking", // only in a Redis Cluster
	"acl|dryrun", // of what [Replayed] has, as the default user, where there is an append-only file
}

// DefaultUser is a rule for the user that Redis has always, and who nobody should be. It keeps
// its rights though nobody can be it: as this user a server repeats what its append-only file has of
// scripts, when it starts, and what the user may not do is left out.
const DefaultUser = "user default reset off +@all ~*"

// Replayed are the commands that an append-only file may have of scripts, with arguments
// that fit a key of a keyspace: those that write, PEXPIREAT for PEXPIRE, and UNLINK for what had
// expired.
func Replayed(keyspace string) [][]any {
	var all [][]any
	for _, c := range [][]any{
		{"set", "", ""}, {"del", ""}, {"mset", "", ""}, {"msetnx", "", ""}, {"pexpireat", "", "1"}, {"hset", "", "f", ""}, {"hdel", "", "f"},
		{"zadd", "", "1", "m"}, {"zrem", "", "m"}, {"xadd", "", "*", "f", ""}, {"unlink", ""},
	} {
		c[1] = keyspace + ":{0}:x"
		all = append(all, c)
	}
	return all
}

// scripted are commands that scripts call, whether they are sent directly as well or
// not. Redis checks them like any others.
var scripted = []string{
	"time",
	"get", "set", "del", "mget", "mset", "msetnx", "getrange", "pexpire", "pttl",
	"hget", "hmget", "hset", "hdel", "hlen", "hgetall",
	"zadd", "zrem", "zrange", "zscore", "zmscore", "zcount", "zcard",
	"xadd", "xrevrange", // of the audit stream as well
}

// events are the commands for those who read events.
var events = []string{"xrange"}

// measures are the commands that scripts call only where the bytes of namespaces are limited:
// nodes start without them elsewhere, by a grant of an earlier version.
var measures = []string{"hstrlen"}

// sentinel are commands that a client sends to Sentinel. It pings a subscription that
// has been quiet for a while.
var sentinel = []string{
	"ping", "client|setname", "subscribe", "sentinel|get-master-addr-by-name", "sentinel|sentinels",
}

// Commands are the commands of the grant, as ACL rules have them after the '+'. With
// functions there is none that brings code along.
func Commands(functions bool) []string {
	return slices.Concat(calls(functions), direct, scripted, events, measures)
}

// Scripted are the commands of the grant that scripts call.
func Scripted() []string { return append([]string{}, scripted...) }

// Measures are the commands of the grant that scripts call only where bytes are limited.
func Measures() []string { return append([]string{}, measures...) }

// Rules are the rules of a keyspace's user, without name and password, where nodes
// call functions or bring their scripts along.
func Rules(keyspace string, functions bool) string {
	return "resetkeys ~" + keyspace + ":{* resetchannels -@all +" + strings.Join(Commands(functions), " +")
}

// SharedRules are Rules for a Redis that others use too. They leave out ACL DRYRUN, which
// tells about any user of the server whether there is one, and what it may do. The nodes then
// do not find out whether Redis can load its append-only file, and say so.
func SharedRules(keyspace string, functions bool) string {
	return strings.Replace(Rules(keyspace, functions), " +acl|dryrun", "", 1)
}

// loading are the commands of who loads the functions: once for each version, and
// never as the user of the nodes.
var loading = []string{"ping", "client|setname", "function|load", "function|list", "function|delete", "cluster|slots", "command"}

// LoaderRules are the rules of the user that loads the functions. It reaches no key.
func LoaderRules() string {
	return "resetkeys resetchannels -@all +" + strings.Join(loading, " +")
}

// SentinelRules are the rules of the user that Sentinel itself knows.
func SentinelRules() string {
	return "resetkeys resetchannels &+switch-master &+replica-reconf-done -@all +" + strings.Join(sentinel, " +")
}

// User is a line for an ACL file: a user that is on, with the SHA-256 of its password
// in hexadecimal.
func User(name, passwordSHA256, rules string) string {
	return fmt.Sprintf("user %s reset on #%s %s", name, passwordSHA256, rules)
}

// HashPassword is the form in which an ACL file has a password.
func HashPassword(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

// CheckKeyspace tells what is wrong with the name of a keyspace: it has 1 to 128
// letters, digits and any of - _ . : and so nothing that means something in a key
// pattern or a hash tag.
func CheckKeyspace(name string) error {
	if name == "" || len(name) > MaxKeyspace {
		return fmt.Errorf("key prefix of %d bytes: must have 1 to %d", len(name), MaxKeyspace)
	}
	for _, r := range name {
		if !word(r) && r != ':' {
			return fmt.Errorf("key prefix %.160q: letters, digits and any of - _ . : are allowed", name)
		}
	}
	return nil
}

// CheckUser tells what is wrong with the name of a user: as a keyspace, without ':'.
func CheckUser(name string) error {
	if CheckKeyspace(name) != nil || strings.ContainsRune(name, ':') {
		return fmt.Errorf("user %.160q: must have 1 to %d letters, digits, dots, dashes and underscores", name, MaxKeyspace)
	}
	return nil
}

func word(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
}
