-- limit_view.lua: read holders and waiters of units of names at home in this shard.
-- KEYS  1 meta; then 4 per name, as for limit_units.lua
-- ARGV  1-3 common; then 1 per name: most holders, and most waiters, to list
-- Reply {code, clock, {per name: {holders, waiters, {holder, until when, since when ...},
--       {waiter, rank, 0 | waiter, 0, until when a unit is reserved ...}}}}
-- Guards: what has expired by the shard's clock is not counted: units, reservations, and places in line that nobody
--       asked for again within a minute.
-- May be repeated: it stores nothing but the clock.

local STALE = 60000 -- as in limit_units.lua
local LOOKS = 100   -- most places in line to look at

local future = int(clock_ms + 1)

local function add(list, a, b, c)
	local n = #list
	list[n + 1], list[n + 2], list[n + 3] = a, b, c
end

local function first(key, most)
	return call('zrange', key, future, '+inf', 'byscore', 'limit', '0', int(most), 'withscores')
end

local function list_holders(holders, since, most)
	local list, units = {}, first(holders, most)
	for i = 1, #units, 2 do
		add(list, units[i], tonumber(units[i + 1]), tonumber(call('hget', since, units[i]) or 0))
	end
	return list
end

local function list_waiters(line, times, most)
	local list, reserved = {}, first(times, most)
	for i = 1, #reserved, 2 do add(list, reserved[i], 0, tonumber(reserved[i + 1])) end
	local places = call('zrange', line, '0', int(LOOKS - 1), 'withscores')
	for i = 1, #places, 2 do
		if #list >= 3 * most then break end
		local asked = tonumber(call('zscore', times, places[i]) or 0)
		if asked > clock_ms - STALE and asked <= clock_ms then add(list, places[i], tonumber(places[i + 1]), 0) end
	end
	return list
end

local answers = {}
for a = 4, #ARGV do
	local k, most = 2 + 4 * #answers, tonumber(ARGV[a])
	local holders, since, line, times = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
	answers[#answers + 1] = {call('zcount', holders, future, '+inf'),
		call('zcount', times, int(clock_ms - STALE + 1), '+inf'),
		list_holders(holders, since, most), list_waiters(line, times, most)}
end
return {0, clock_seen, answers}
