-- limit_units.lua: units of locks and of queues' concurrency, of names at home in this shard.
-- KEYS  1 meta; then 4 per group:
--       holders, score: expiry   hash holder -> since   waiters in line, score: rank
--       their times, score: when it last asked; in the future: until when a unit is reserved for it
-- ARGV  1-3 common; then per group, all of one name: verb, limit, number of asks, and of each ask
--       holder, waiter ("" none), rank, TTL in ms
--       a  acquire: a unit if holders and reservations leave one; otherwise the waiter gets in line
--       r  release: the holder's unit, and what the waiter has; reserves free units for the first in line
--       k  keep: prolong the holder's unit
--       n  count the holders, without asks
-- Reply {code, clock, {per group}}
--       a {one digit per ask: 0 denied, 1 granted now, 2 held already, 3 denied, and among the first in line; who stands
--          in the way of those denied, since when, and until when unless it is prolonged; since when each of those held already}
--       r {waiters to wake}   k {one digit per ask: 1 kept, 0 lost}   n {holders}
-- Guards: an instant that is not after the clock has passed: a unit, a reservation, a
--       place in line that nobody asked for again. Who holds, and until when, is
--       decided by the shard's clock alone; Redis's own expiry only clears away keys
--       that nobody has used for days, whatever that clock does meanwhile.
-- May be repeated: a holder that asks again has its unit already. Releasing what is not
--       held tells again for whom units are reserved. A repeat of keep prolongs again.

local LINE = 10000     -- most waiters of a name; others come back by themselves
local STALE = 60000    -- ms after which a waiter that has not asked again is forgotten
local RESERVED = 2000  -- ms that a woken waiter has to come
local SOME = 100       -- most that are cleared away at a time, or woken by a release
local LIFE = 432000000 -- ms; five days: twice the longest TTL for the clock's lag, twice that as it may go at half speed, and one more
local ASK = 4          -- arguments of an ask

local now, past, future = clock_ms, int(clock_ms), int(clock_ms + 1)
-- after is an instant that does not come before so many ms have passed.
local function after(ms) return now + ms + math.min(clock_ahead, ms + LEAP) end

local holders, since, line, times -- keys of the group at hand. Whoever is in line has a time.

local function live(key) return call('zcount', key, future, '+inf') end

local function first(key, most)
	return call('zrange', key, future, '+inf', 'byscore', 'limit', '0', int(most))
end

local function push(list, x, y)
	list[#list + 1] = x
	list[#list + 1] = y
end

-- outlive puts off the clearing away of keys. A virtual clock has nothing to do
-- with the one by which Redis does it.
local function outlive(a, b)
	if ARGV[3] ~= '' then return end
	call('pexpire', a, int(LIFE))
	call('pexpire', b, int(LIFE))
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

-- column returns one argument of each ask, but for those that are "".
local function column(at, count, which)
	local list = {}
	for a = at + which, at + ASK * count - 1, ASK do
		if ARGV[a] ~= '' then list[#list + 1] = ARGV[a] end
	end
	return list
end

-- prolong returns which of the asks' holders have a unit. It shortens none, but for a holder
-- that is named twice: its last TTL counts.
local function prolong(at, count)
	local names, kept, longer = column(at, count, 0), {}, {}
	for i, held in ipairs(call('zmscore', holders, unpack(names))) do
		local till, new = tonumber(held or 0), after(tonumber(ARGV[at + ASK * i - 1]))
		kept[i] = till > now
		if kept[i] and new > till then push(longer, int(new), names[i]) end
	end
	if #longer > 0 then
		call('zadd', holders, 'xx', unpack(longer))
		outlive(holders, since)
	end
	return kept
end

-- queue puts waiters that were denied in line: {rank, waiter ...}.
local function queue(denied)
	if #denied == 0 then return end
	local names, length, ranks, asked = {}, call('zcard', line), {}, {}
	for i = 2, #denied, 2 do names[#names + 1] = denied[i] end
	for i, known in ipairs(call('zmscore', line, unpack(names))) do
		if known or length < LINE then
			push(ranks, denied[2 * i - 1], names[i])
			push(asked, past, names[i])
			if not known then length = length + 1 end
		end
	end
	if #ranks == 0 then return end
	call('zadd', line, unpack(ranks))
	call('zadd', times, unpack(asked))
	outlive(line, times)
end

-- obstacle is who stands in the way, since when, and until when: of the holders the one
-- whose unit lapses first.
local function obstacle()
	local by = call('zrange', holders, future, '+inf', 'byscore', 'limit', '0', '1', 'withscores')
	if by[1] then return by[1], tonumber(call('hget', since, by[1]) or 0), tonumber(by[2]) end
	by = call('zrange', times, future, '+inf', 'byscore', 'limit', '0', '1', 'withscores')
	return by[1], tonumber(by[2]) - RESERVED, tonumber(by[2])
end

-- lead marks in digits the asks that were denied whose waiters are among the first in line: as
-- many as there are units.
local function lead(digits, at, limit)
	local leading = {}
	for _, waiter in ipairs(call('zrange', line, '0', int(math.min(limit, SOME) - 1))) do leading[waiter] = true end
	for i = 1, #digits do
		if digits[i] == '0' and leading[ARGV[at + ASK * (i - 1) + 1]] then digits[i] = '3' end
	end
end

local function acquire(at, count, limit)
	local taken = call('zcard', holders)
	local kept = taken > 0 and prolong(at, count) or {}
	local reserved = {} -- waiter -> until when it has a unit reserved, or when it last asked
	local waited = call('zcard', times) > 0
	local waiters = waited and column(at, count, 1) or {}
	-- Most often there is room whatever has lapsed, and nobody waits.
	if waited or taken + count > limit then
		purge()
		taken = live(holders) + live(times)
	end
	if #waiters > 0 then
		for i, asked in ipairs(call('zmscore', times, unpack(waiters))) do
			reserved[waiters[i]] = asked and tonumber(asked)
		end
	end
	local digits, units, sinces, come, denied, held, new, refused = {}, {}, {}, {}, {}, {}, {}, false
	for i = 1, count do
		local a = at + ASK * (i - 1)
		local holder, waiter = ARGV[a], ARGV[a + 1]
		-- It has come: nothing is reserved for it any more.
		if not kept[i] and not new[holder] and (reserved[waiter] or 0) > now then taken = taken - 1 end
		if kept[i] then
			digits[i] = '2'
			held[#held + 1] = holder
		elseif new[holder] then
			digits[i] = '1'
		elseif taken < limit then
			digits[i] = '1'
			taken = taken + 1
			new[holder] = true
			push(units, int(after(tonumber(ARGV[a + 3]))), holder)
			push(sinces, holder, past)
			if reserved[waiter] then come[#come + 1] = waiter end
			reserved[waiter] = nil
		else
			digits[i] = '0'
			refused = true
			if waiter ~= '' then push(denied, ARGV[a + 2], waiter) end
			if reserved[waiter] then reserved[waiter] = 0 end
		end
	end
	if #units > 0 then
		call('zadd', holders, unpack(units))
		call('hset', since, unpack(sinces))
		outlive(holders, since)
	end
	if #come > 0 then
		call('zrem', line, unpack(come))
		call('zrem', times, unpack(come))
	end
	queue(denied)
	if #denied > 0 then lead(digits, at, limit) end
	local answer = {table.concat(digits), '', 0, 0}
	if refused then
		local by, from, till = obstacle()
		answer[2], answer[3], answer[4] = by, from, till
	end
	if #held > 0 then
		for i, at in ipairs(call('hmget', since, unpack(held))) do answer[4 + i] = tonumber(at or 0) end
	end
	return answer
end

-- wake reserves units for the first in line and appends them to list.
local function wake(free, list)
	for _ = 1, SOME do
		if free <= 0 then return end
		local ids = call('zrange', line, '0', int(math.min(free, SOME) - 1))
		if #ids == 0 then return end
		call('zrem', line, unpack(ids))
		local asked = call('zmscore', times, unpack(ids))
		local come, gone = {}, {}
		for i, id in ipairs(ids) do
			if tonumber(asked[i] or 0) > now - STALE then
				push(come, int(after(RESERVED)), id)
				list[#list + 1] = id
			else
				gone[#gone + 1] = id
			end
		end
		free = free - #come / 2
		if #come > 0 then call('zadd', times, unpack(come)) end
		if #gone > 0 then call('zrem', times, unpack(gone)) end
	end
end

local function release(at, count, limit)
	local names, waiters, list, missed = column(at, count, 0), column(at, count, 1), {}, false
	if #names > 0 then
		call('hdel', since, unpack(names))
		missed = call('zrem', holders, unpack(names)) < #names
	end
	if call('zcard', times) == 0 then return list end -- nobody waits
	if missed then list = first(times, SOME) end
	purge()
	if #waiters > 0 then
		call('zrem', line, unpack(waiters))
		call('zrem', times, unpack(waiters))
	end
	wake(math.min(limit - live(holders) - live(times), SOME * count), list)
	return list
end

local function keep(at, count)
	local digits = {}
	for i, kept in ipairs(prolong(at, count)) do digits[i] = kept and '1' or '0' end
	return {table.concat(digits)}
end

local answers = {}
local a = 4
while a <= #ARGV do
	local k = 2 + 4 * #answers
	holders, since, line, times = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
	local verb, limit, count = ARGV[a], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
	a = a + 3
	local answer
	if verb == 'a' then
		answer = acquire(a, count, limit)
	elseif verb == 'r' then
		answer = release(a, count, limit)
	elseif verb == 'k' then
		answer = keep(a, count)
	else
		answer = {live(holders)}
	end
	answers[#answers + 1] = answer
	a = a + ASK * count
end
return {0, clock_seen, answers}
