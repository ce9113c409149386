-- limit_queues.lua: store the settings of a queue. Not part of any shard, so it has
-- none of the common arguments.
-- KEYS  1 hash: "namespace/queue" -> settings
--       2 hash: namespace -> queues of it that have settings, "#all" -> queues that have settings,
--         "#counted" -> when all were counted last, ms. Nodes of older versions do not keep it:
--         it counts only while "#all" is right.
-- ARGV  1 field  2 settings, protobuf; "" deletes  3 most queues with settings
--       4 "1": only if they are still 5, "" for none, or what they are to be already
-- Reply {0 stored, 1 there are too many, 2 they are others, 3 the namespace has too many}
-- Guards: a queue too many is refused; one that has settings may always change them. A
--       namespace has no more than are free: alone half of all. While fewer than half are
--       taken that holds without counting. All are counted at most once a minute while
--       only nodes of this version write.
-- May be repeated: the same settings are stored again.
local key, counts, field, value = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local stored = call('hget', key, field)
if ARGV[4] == '1' and (stored or '') ~= ARGV[5] and stored ~= value then return {2} end
if value == '' and not stored then return {0} end
if value ~= '' and stored then
	call('hset', key, field, value)
	return {0}
end
local namespace, all, most = sub(field, 1, find(field, '/', 1, true) - 1), call('hlen', key), tonumber(ARGV[3])
local kept = call('hmget', counts, '#all', '#counted', namespace)
local right, n = tonumber(kept[1]) == all, tonumber(kept[3]) or 0

-- count_all counts the queues of all namespaces.
local function count_all(now)
	local fields, numbers, list = call('hgetall', key), {}, {'#all', int(all), '#counted', int(now)}
	for i = 1, #fields, 2 do
		local slash = find(fields[i], '/', 1, true)
		if slash then
			local name = sub(fields[i], 1, slash - 1)
			numbers[name] = (numbers[name] or 0) + 1
		end
	end
	for name, number in pairs(numbers) do
		list[#list + 1] = name
		list[#list + 1] = int(number)
	end
	call('del', counts)
	wide('hset', counts, list)
	right, n = true, numbers[namespace] or 0
end

if value ~= '' then
	if all >= most then return {1} end
	if 2 * all >= most then
		local t = call('time')
		local now = t[1] * 1000 + math.floor(t[2] / 1000)
		local age = now - (tonumber(kept[2]) or 0)
		-- Changes by older nodes may make up for one another in "#all": hence the hour, and
		-- the minute where a namespace would be refused.
		if not right or age < 0 or age > 3600000 or n >= most - all and age > 60000 then count_all(now) end
		if n >= most - all then return {3} end
	end
end
local step = value == '' and -1 or 1
if value == '' then
	call('hdel', key, field)
else
	call('hset', key, field, value)
end
if not right then
	call('hdel', counts, '#all')
	return {0}
end
call('hset', counts, '#all', int(all + step))
if n + step > 0 then
	call('hset', counts, namespace, int(n + step))
else
	call('hdel', counts, namespace)
end
return {0}
