-- secret.lua: a secret that all processes share, made by the first caller. Not
-- part of any shard, so it has none of the common arguments.
-- KEYS  1 the keyspace hash
-- ARGV  1 field  2 the secret to store if there is none
-- Reply {secret}
-- May be repeated: what is stored is never changed.
local stored = redis.call('hget', KEYS[1], ARGV[1])
if stored then
	return {stored}
end
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
return {ARGV[2]}
