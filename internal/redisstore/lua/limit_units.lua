-- limit_units.lua: units of locks and of queues' concurrency, of names at home in this shard.
-- KEYS  1 meta; then 4 per item:
--       holders, score: expiry   hash holder -> since   waiters in line, score: rank
--       their times, score: when it last asked; in the future: until when a unit is reserved for it
-- ARGV  1-3 common; then 6 per item: verb, limit, holder, waiter ("" none), rank, TTL in ms
--       a  acquire: a unit if holders and reservations leave one; otherwise the waiter gets in line
--       r  release: the holder's unit, and what the waiter has; reserves free units for the first in line
--       k  keep: prolong the holder's unit
--       n  count the holders
-- Reply {code, clock, {per item}}
--       a {1, "", since} or {0, who stands in the way, since}   r {waiters to wake}   k {1 kept, 0 lost}   n {holders}
-- Guards: an instant that is not after the clock has passed: a unit, a reservation, a
--       place in line that nobody asked for again. Who holds, and until when, is
--       decided by the shard's clock alone; Redis's own expiry only clears away keys
--       that nobody has used for days, whatever that clock does meanwhile.
-- May be repeated: a holder that asks again has its unit already. Releasing what is not
--       held tells again for whom units are reserved. A repeat of keep prolongs again.

local LINE = 10000     -- most waiters of a name; others come back by themselves
local STALE = 60000    -- ms after which a waiter that has not asked again is forgotten
local RESERVED = 2000  -- ms that a woken waiter has to come
local SOME = 100       -- most that are cleared away or woken at a time
local LIFE = 259200000 -- ms; three days: twice the longest TTL, because the clock may go at half speed, and one more

local now, past, future = clock_ms, int(clock_ms), int(clock_ms + 1)
local holders, since, line, times -- keys of the item at hand

local function live(key) return call('zcount', key, future, '+inf') end

local function first(key, most)
	return call('zrange', key, future, '+inf', 'byscore', 'limit', '0', int(most))
end

-- outlive puts off the clearing away of keys. A virtual clock has nothing to do
-- with the one by which Redis does it.
local function outlive(...)
	if ARGV[3] ~= '' then return end
	for _, key in ipairs({...}) do call('pexpire', key, int(LIFE)) end
end

local function purge()
	local gone = call('zrange', holders, '0', past, 'byscore', 'limit', '0', int(SOME))
	if #gone > 0 then
		call('zrem', holders, unpack(gone))
		call('hdel', since, unpack(gone))
	end
	gone = call('zrange', times, '0', int(now - STALE), 'byscore', 'limit', '0', int(SOME))
	if #gone > 0 then
		call('zrem', line, unpack(gone))
		call('zrem', times, unpack(gone))
	end
end

-- prolong tells whether the holder has a unit. It never shortens.
local function prolong(holder, ttl)
	local held = tonumber(call('zscore', holders, holder) or 0)
	if held <= now then return false end
	if now + ttl > held then
		call('zadd', holders, 'xx', int(now + ttl), holder)
		outlive(holders, since)
	end
	return true
end

local function acquire(limit, holder, waiter, rank, ttl)
	if prolong(holder, ttl) then return {1, '', tonumber(call('hget', since, holder) or 0)} end
	purge()
	if waiter ~= '' then call('zrem', times, waiter) end -- it has come: nothing is reserved for it any more
	if live(holders) + live(times) < limit then
		call('zadd', holders, int(now + ttl), holder)
		call('hset', since, holder, past)
		if waiter ~= '' then call('zrem', line, waiter) end
		outlive(holders, since)
		return {1, '', now}
	end
	if waiter ~= '' and (call('zscore', line, waiter) or call('zcard', line) < LINE) then
		call('zadd', line, rank, waiter)
		call('zadd', times, past, waiter)
		outlive(line, times)
	end
	local by = first(holders, 1)[1]
	if by then return {0, by, tonumber(call('hget', since, by) or 0)} end
	by = first(times, 1)[1]
	return {0, by, tonumber(call('zscore', times, by)) - RESERVED}
end

-- wake reserves units for the first in line and appends them to list.
local function wake(free, list)
	for _ = 1, SOME do
		if free <= 0 then return end
		local ids = call('zrange', line, '0', int(math.min(free, SOME) - 1))
		if #ids == 0 then return end
		call('zrem', line, unpack(ids))
		local asked = call('zmscore', times, unpack(ids))
		for i, id in ipairs(ids) do
			if tonumber(asked[i] or 0) > now - STALE then
				call('zadd', times, int(now + RESERVED), id)
				list[#list + 1] = id
				free = free - 1
			else
				call('zrem', times, id)
			end
		end
	end
end

local function release(limit, holder, waiter)
	local list = {}
	if holder ~= '' then
		call('hdel', since, holder)
		if call('zrem', holders, holder) == 0 then list = first(times, SOME) end
	end
	purge()
	if waiter ~= '' then
		call('zrem', line, waiter)
		call('zrem', times, waiter)
	end
	wake(math.min(limit - live(holders) - live(times), SOME), list)
	return list
end

local answers = {}
for a = 4, #ARGV, 6 do
	local k = 2 + 4 * #answers
	holders, since, line, times = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
	local verb, limit, holder, waiter = ARGV[a], tonumber(ARGV[a + 1]), ARGV[a + 2], ARGV[a + 3]
	local answer
	if verb == 'a' then
		answer = acquire(limit, holder, waiter, ARGV[a + 4], tonumber(ARGV[a + 5]))
	elseif verb == 'r' then
		answer = release(limit, holder, waiter)
	elseif verb == 'k' then
		answer = {prolong(holder, tonumber(ARGV[a + 5])) and 1 or 0}
	else
		answer = {live(holders)}
	end
	answers[#answers + 1] = answer
end
return {0, clock_us, answers}
