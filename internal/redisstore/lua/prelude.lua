-- prelude.lua: put before every script by the loader.
--
-- Only string, table, math and redis.call are used. Every key is declared in
-- KEYS, KEYS[1] is the shard's meta hash. Numbers that are stored are formatted
-- by int(), because tostring() turns great ones into 1.79e+15. Guards come
-- before writes: Redis does not undo what a script did before it failed.
--
-- Common arguments  1 expected clock, ms; 0 none   2 "1" accept a clock jump
--                   3 virtual clock, ms; "" real time
-- Common reply      {code, clock in us, ...}; codes other than 0 mean that
--                   nothing was written:
--                   1 clock jump  2 not the holder  3 virtual clock mismatch

local call, fmt, sub, find = redis.call, string.format, string.sub, string.find
local KEYS, ARGV = KEYS, ARGV -- globals are slower
-- Where events are recorded, events.lua comes after this file: it sets record, and ends
-- a script's own arguments before those of the events.
local record, ARGS = nil, #ARGV
local REGION = 4398046511104 -- 2^42: scores of region r begin at r * REGION
local NEVER = REGION - 1
local JUMP = 60000 -- ms that the clock may be ahead of what the caller expects

-- Integers are formatted as such where the server's are wide enough: as floating
-- point numbers they take three times as long.
local WIDE = fmt('%d', REGION) == '4398046511104'
local INT, TOKEN = WIDE and '%d' or '%.0f', WIDE and '%016d' or '%016.0f'

local function int(n) return fmt(INT, n) end

-- wide puts a list of values into as many calls as it takes, with an option
-- after the key if there is one.
local function wide(command, key, list, option)
	for i = 1, #list, 1000 do
		local last = math.min(i + 999, #list)
		if option then
			call(command, key, option, unpack(list, i, last))
		else
			call(command, key, unpack(list, i, last))
		end
	end
end

-- sane tells whether a state's header can be trusted. The tail begins with a
-- letter, so a run of digits of just this length is header and version.
local function sane(text)
	if not text then return false end
	local _, last = find(text, '^%d+')
	return last == 36
end

-- The meta field "c" is fixed text:
--   clock, ms (16) | anchor, real (16) | anchor, clock (16) | token (16) | virtual (1)
local clock = {}

-- advance reads the meta field and moves the clock, as Clock.Advance of package
-- lease does: it is Redis's TIME as long as that does not step back. Behind the
-- clock it goes on at half of TIME's rate from an anchor until TIME has caught
-- up, and never faster than the caller's clock: TIME may have been put right. Far ahead of what the caller expects it is refused until a caller accepts
-- it. Returns a code.
local function advance(text)
	local real, usec
	if ARGV[3] ~= '' then
		real, usec = tonumber(ARGV[3]), 0
	else
		local t = call('time')
		real = t[1] * 1000 + math.floor(t[2] / 1000)
		usec = t[2] % 1000
	end
	local virtual = ARGV[3] ~= '' and '1' or '0'
	local mark, anchor_real, anchor_clock, token = 0, 0, 0, 0
	if text and #text == 65 then
		mark = tonumber(sub(text, 1, 16))
		anchor_real = tonumber(sub(text, 17, 32))
		anchor_clock = tonumber(sub(text, 33, 48))
		token = tonumber(sub(text, 49, 64))
		if sub(text, 65) ~= virtual then
			clock.us = mark * 1000
			return 3
		end
	end
	local expect = tonumber(ARGV[1])
	if expect > 0 and real > expect + JUMP and ARGV[2] ~= '1' then
		clock.us = real * 1000
		return 1
	end
	local anchored = anchor_clock ~= 0 and real >= anchor_real
	local now, slow, leapt = mark, mark, false
	if anchored then slow = anchor_clock + math.floor((real - anchor_real) / 2) end
	if expect > 0 and slow > expect then
		slow, leapt = math.max(mark, expect), true
	end
	if real >= slow and real >= mark then
		now, anchor_real, anchor_clock = real, 0, 0
	elseif not anchored or leapt or slow < mark then
		now = math.max(mark, slow)
		anchor_real, anchor_clock, usec = real, now, 0
	else
		now, usec = slow, 0
	end
	clock.ms, clock.us, clock.token = now, now * 1000 + usec, token
	clock.anchor_real, clock.anchor_clock, clock.virtual = anchor_real, anchor_clock, virtual
	return 0
end

-- keep returns the meta field to store.
local function keep()
	return fmt('%016.0f%016.0f%016.0f%016.0f%s',
		clock.ms, clock.anchor_real, clock.anchor_clock, clock.token, clock.virtual)
end

-- start is advance for scripts that need nothing else of the meta hash. The
-- clock is written at once: it is right whatever the script does then.
local function start()
	local code = advance(call('hget', KEYS[1], 'c'))
	if code == 0 then call('hset', KEYS[1], 'c', keep()) end
	return code
end

-- heads brings the index of lanes in line with the lanes of these KEYS and
-- returns the first due time of each, and the places in KEYS of those whose
-- first due time became earlier. A lane's name is what follows "...l:" in its
-- key, whose prefix is two bytes shorter than "...lanes".
local function heads(index, places)
	if #places == 0 then return {}, {} end
	local skip, names = #index - 2, {}
	for i, k in ipairs(places) do names[i] = sub(KEYS[k], skip) end
	local before = call('zmscore', index, unpack(names))
	local due, earlier, set, gone = {}, {}, {}, {}
	for i, k in ipairs(places) do
		local first = call('zrange', KEYS[k], '0', '0', 'withscores')
		local old = before[i] and tonumber(before[i])
		if not first[1] then
			due[i] = NEVER
			if old then gone[#gone + 1] = names[i] end
		else
			due[i] = math.min(tonumber(first[2]), NEVER)
			if due[i] ~= old then
				set[#set + 1] = int(due[i])
				set[#set + 1] = names[i]
			end
			if due[i] < (old or NEVER) then earlier[#earlier + 1] = k end
		end
	end
	if #set > 0 then call('zadd', index, unpack(set)) end
	if #gone > 0 then call('zrem', index, unpack(gone)) end
	return due, earlier
end

-- news is what a writing script reports of lanes: {place, due, place, due ...}
-- of those that became earlier, and the value of the lock, for whom to tell.
local function news(index, lock, places)
	local due, earlier = heads(index, places)
	local list, at = {}, {}
	for i, k in ipairs(places) do at[k] = due[i] end
	for _, k in ipairs(earlier) do
		list[#list + 1] = k
		list[#list + 1] = at[k]
	end
	return list, #list > 0 and call('get', lock) or ''
end
