-- limit_queues.lua: store the settings of a queue. Not part of any shard, so it has
-- none of the common arguments.
-- KEYS  1 hash: "namespace/queue" -> settings
-- ARGV  1 field  2 settings, protobuf; "" deletes  3 most queues with settings
-- Reply {0 stored, 1 there are too many}
-- Guards: a queue too many is refused; one that has settings may always change them.
-- May be repeated: the same settings are stored again.
local key, field, value = KEYS[1], ARGV[1], ARGV[2]
if value == '' then
	call('hdel', key, field)
	return {0}
end
if not call('hget', key, field) and call('hlen', key) >= tonumber(ARGV[3]) then return {1} end
call('hset', key, field, value)
return {0}
