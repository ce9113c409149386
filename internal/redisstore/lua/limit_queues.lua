-- limit_queues.lua: store the settings of a queue. Not part of any shard, so it has
-- none of the common arguments.
-- KEYS  1 hash: "namespace/queue" -> settings
-- ARGV  1 field  2 settings, protobuf; "" deletes  3 most queues with settings
--       4 "1": only if they are still 5, "" for none, or what they are to be already
-- Reply {0 stored, 1 there are too many, 2 they are others}
-- Guards: a queue too many is refused; one that has settings may always change them.
-- May be repeated: the same settings are stored again.
local key, field, value = KEYS[1], ARGV[1], ARGV[2]
if ARGV[4] == '1' then
	local stored = call('hget', key, field) or ''
	if stored ~= ARGV[5] and stored ~= value then return {2} end
end
if value == '' then
	call('hdel', key, field)
	return {0}
end
if not call('hget', key, field) and call('hlen', key) >= tonumber(ARGV[3]) then return {1} end
call('hset', key, field, value)
return {0}
