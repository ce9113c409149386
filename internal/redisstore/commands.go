package redisstore

// Commands lists the commands that the Redis user of a store needs, in the form
// of ACL rules without the leading '+'. The keys are those below the prefix.
// Commands inside scripts are checked like any others. Locks need more: what
// bsm/redislock uses.
func Commands() []string {
	return []string{
		"hello", "auth", "ping", "client|setname", "info", "wait",
		"eval", "evalsha",
		"time", "get", "set", "del", "pexpire",
		"hget", "hmget", "hset", "hdel", "hlen", "hgetall", "hscan",
		"zadd", "zrem", "zrange", "zscore", "zmscore", "zcount", "zcard",
		"cluster|slots", "command", "asking",
	}
}
