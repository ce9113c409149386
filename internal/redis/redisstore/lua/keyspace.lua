-- keyspace.lua: fix what a keyspace is, or read it. Not part of any shard, so
-- it has none of the common arguments.
-- KEYS  1 the keyspace hash
-- ARGV  1 number of shards  2 schema version  3 virtual clock: "0" or "1"
-- Reply {created, shards, schema version, virtual}, the last three as stored, texts
-- Guards: the server formats integers of more than 32 bits, which all scripts rely on.
-- May be repeated: what is stored is never changed.
if int(REGION) ~= '4398046511104' then
	return redis.error_reply('ERR this server formats integers of 32 bits only; Fermata needs a 64-bit one')
end
local stored = call('hmget', KEYS[1], 'shards', 'schema', 'virtual')
if stored[1] then
	return {0, stored[1], stored[2] or '', stored[3] or ''}
end
call('hset', KEYS[1], 'shards', ARGV[1], 'schema', ARGV[2], 'virtual', ARGV[3])
return {1, ARGV[1], ARGV[2], ARGV[3]}
