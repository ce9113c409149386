-- reap.lua: list records whose time in a region has come: leases that ended,
-- dead letters and finished records to be deleted.
-- KEYS  1 meta  2 states  3 lock  4.. lanes
-- ARGV  1-3 common  4 lock value  5 most records to list  6.. regions
-- Reply {code, clock, {place of the lane of each}, {records}, {states}, {corrupt records}}
-- Guards: the lock has the caller's value. A record without a sane state is moved
--       out of the way, to the dead region for ever, and reported.
-- May be repeated: it changes no record. What is done about the records is
--       compare and set, by apply.
if call('get', KEYS[3]) ~= ARGV[4] then return {2, clock_seen} end

local left = tonumber(ARGV[5])
local places, records, states, corrupt = {}, {}, {}, {}
for k = 4, #KEYS do
	for r = 6, #ARGV do
		local from = tonumber(ARGV[r]) * REGION
		local ids = left > 0 and call('zrange', KEYS[k], int(from), int(from + clock_ms), 'byscore', 'limit', '0', int(left)) or {}
		if #ids > 0 then
			local bad = {}
			for i, text in ipairs(call('hmget', KEYS[2], unpack(ids))) do
				left = left - 1
				if sane(text) then
					places[#places + 1], records[#records + 1], states[#states + 1] = k, ids[i], text
				else
					corrupt[#corrupt + 1] = ids[i]
					bad[#bad + 1], bad[#bad + 2] = int(3 * REGION + NEVER), ids[i]
				end
			end
			if #bad > 0 then call('zadd', KEYS[k], 'xx', unpack(bad)) end
		end
	end
end
return {0, clock_seen, places, records, states, corrupt}
