-- limit_queues.lua: store the settings of a queue. Not part of any shard, so it has
-- none of the common arguments.
-- KEYS  1 hash: "namespace/queue" -> settings
-- ARGV  1 field  2 settings, protobuf; "" deletes  3 most queues with settings
--       4 "1": only if they are still 5, "" for none, or what they are to be already
-- Reply {0 stored, 1 there are too many, 2 they are others, 3 the namespace has too many}
-- Guards: a queue too many is refused; one that has settings may always change them. A
--       namespace has no more than are free: alone half of all. While fewer than half are
--       taken that holds without counting.
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
if not call('hget', key, field) then
	local all, most = call('hlen', key), tonumber(ARGV[3])
	if all >= most then return {1} end
	if 2 * all >= most then
		local namespace, n = sub(field, 1, find(field, '/', 1, true)), 0
		local fields = call('hgetall', key)
		for i = 1, #fields, 2 do
			if sub(fields[i], 1, #namespace) == namespace then n = n + 1 end
		end
		if n >= most - all then return {3} end
	end
end
call('hset', key, field, value)
return {0}
