-- renew.lua: prolong leases.
-- KEYS  1 meta  2 states  3.. lanes of the records
-- ARGV  1-3 common  4 TTL, ms  5.. per lease: record, place of its lane, token,
--       epoch, "1" acked, latest deadline ("0" none)
-- Reply {code, clock, one digit per lease, {revision of each}}
--       0 renewed  1 lease lost  2 moved to a later session
-- Guards: the token is that of a live lease; its session is not a later one.
-- May be repeated: renewing twice only prolongs twice.

local ids, codes, revisions, fields, scores = {}, {}, {}, {}, {}
for a = 5, #ARGV, 6 do ids[#ids + 1] = ARGV[a] end
local texts = call('hmget', KEYS[2], unpack(ids))
local ttl = tonumber(ARGV[4])
local until_ms = clock_ms + ttl + math.min(clock_ahead, ttl + LEAP) -- ttl from now at the earliest
for i, id in ipairs(ids) do
	local a, text = 5 + 6 * (i - 1), texts[i]
	revisions[i] = 0
	if not sane(text) or sub(text, 17, 17) ~= '1' or sub(text, 1, 16) ~= ARGV[a + 2] then
		codes[i] = '1'
	elseif sub(text, 29, 34) > ARGV[a + 3] then
		codes[i] = '2'
	else
		codes[i], revisions[i] = '0', tonumber(sub(text, 19, 28))
		local acked = ARGV[a + 4] == '1' and '1' or sub(text, 18, 18)
		if acked ~= sub(text, 18, 18) or ARGV[a + 3] ~= sub(text, 29, 34) then
			fields[#fields + 1] = id
			fields[#fields + 1] = sub(text, 1, 17) .. acked .. sub(text, 19, 28) .. ARGV[a + 3] .. sub(text, 35)
		end
		local stop, k = tonumber(ARGV[a + 5]), tonumber(ARGV[a + 1])
		if stop == 0 or stop > until_ms then stop = until_ms end
		local list = scores[k] or {}
		scores[k] = list
		list[#list + 1] = int(REGION + stop)
		list[#list + 1] = id
	end
end
wide('hset', KEYS[2], fields)
for k, list in pairs(scores) do wide('zadd', KEYS[k], list, 'xx') end
return {0, clock_seen, table.concat(codes), revisions}
