-- rename_end.lua: replace or remove the entry of a rename, and remove the record that keeps its name.
-- KEYS  1 meta  2 states  3 definitions  4 index of lanes  5 lock  6 renames  7 lane of the record
--       and if there is a request id to be kept: 8 renames that have ended  9 when each of them has ended
-- ARGV  1-3 common  4 field of the rename  5 entry that it has ("" none, "*" any)  6 entry that it gets ("" none)
--       7 record that keeps the name  8 id of the rename
--       and if there is a request id to be kept: 9 its field  10 the renamed job  11 age, in ms, at which it may be
--       removed  12 most request ids of a shard  13 how many are left when there are more
-- Reply {code, clock, digit}
--       0 done  1 the rename has another entry
-- Guards: the entry. Only a record that keeps the name for this rename is removed.
-- May be repeated: an entry that is as it is to be counts as done.
local entry = call('hget', KEYS[6], ARGV[4]) or ''
if ARGV[5] ~= '*' and entry ~= ARGV[5] and entry ~= ARGV[6] then return {0, clock_seen, '1'} end

-- surplus lists fields so that so many are left: the oldest ones of the namespace that has the most. A field begins
-- with its namespace and a slash. The fields come in the order of their times.
local function surplus(fields, left)
	local ranks, known, list = {}, {}, {}
	for i = #fields, 1, -1 do
		local namespace = sub(fields[i], 1, find(fields[i], '/', 1, true) or 0)
		local rank = (known[namespace] or 0) + 1 -- 1: the newest of its namespace
		known[namespace] = rank
		ranks[rank] = ranks[rank] or {}
		ranks[rank][#ranks[rank] + 1] = fields[i]
	end
	for rank = #ranks, 1, -1 do
		for i = #ranks[rank], 1, -1 do
			if #fields - #list <= left then return list end
			list[#list + 1] = ranks[rank][i]
		end
	end
	return list
end

-- keep_request keeps the request id of a rename, and removes ids that are too old or too many.
local function keep_request(finished, times, field, text, age, most, left)
	local function forget(fields)
		wide('hdel', finished, fields)
		wide('zrem', times, fields)
	end
	call('hset', finished, field, text)
	call('zadd', times, int(clock_ms), field)
	forget(call('zrange', times, '-inf', '(' .. int(clock_ms - tonumber(age)), 'byscore', 'limit', '0', '1000'))
	if call('zcard', times) > tonumber(most) then
		forget(surplus(call('zrange', times, '0', int(most)), tonumber(left)))
	end
	call('pexpire', finished, age)
	call('pexpire', times, age)
end
if ARGS > 8 and entry ~= '' then
	keep_request(KEYS[8], KEYS[9], ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13])
end

local kept = call('hget', KEYS[2], ARGV[7])
if kept and sub(kept, 35, 35) == '1' and find(kept, ARGV[8], 1, true) then
	call('zrem', KEYS[7], ARGV[7])
	call('hdel', KEYS[2], ARGV[7])
	call('hdel', KEYS[3], ARGV[7])
	update_lanes(KEYS[4], KEYS[5], {7})
end
if ARGV[6] ~= '' then call('hset', KEYS[6], ARGV[4], ARGV[6]) else call('hdel', KEYS[6], ARGV[4]) end
return {0, clock_seen, '0'}
