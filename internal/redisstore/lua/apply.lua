-- apply.lua: compare and set. One script for settling, pausing, editing,
-- deleting, manual runs: what changes is decided by the caller.
-- KEYS  1 meta  2 states  3 definitions  4 history  5 lanes  6 lock  7.. lanes of the records
-- ARGV  1-3 common  4.. per record, a record at most once:
--       id, guard (token and revision as stored), steps, place of its lane, then
--       what each letter of steps asks for:
--       a  only if the record before it in ARGV was written
--       t  together with the record before it in ARGV: both are written, or neither
--       x  only if the lease has ended
--       w  state, score     write both
--       k  state            write; score, session and acknowledgement stay as stored
--       d                   delete state and definition
--       q                   unreadable: put out of the way, to the dead region for ever
--       u                   its lane is another one: take it off this lane
--       l  place            move to the lane there
--       s  id, place, state, score   spawn: write a new record into the lane there;
--                           with score "" it takes over the lease: score, session
--                           and acknowledgement are those that this record has now
--       f  definition       write
--       h  field, run       write into the history
--       c  id, state, score, definition, field, run   write a dead letter into the lane
--       m  place            the dead letter has been in the lane there so far
--       z  first, last      delete these history slots
-- Reply {code, clock, one digit per record, {states of conflicts}, {place, due ... of lanes that became earlier}, lock value}
--       0 written  1 conflict  2 not found  3 lease has not ended  4 corrupt  5 written by an earlier copy of this call
-- Guards: token and revision are as stored. A record to be spawned does not exist, or
--       is the one that this record is together with, which goes. All records are judged
--       before the first write.
-- May be repeated: a record that has the state (and definition) to be written is one that was written.
--       With what it spawned it may have been leased since; so may two that were written
--       together, and of these the one to be deleted is one that is gone.
local code = start()
if code ~= 0 then return {code, clock.us} end

local takes = {a = 0, t = 0, x = 0, w = 2, k = 1, d = 0, q = 0, u = 0, l = 1, s = 4, f = 1, h = 2, c = 6, m = 1, z = 2}

-- items cuts ARGV into records: {at = index of its first argument, x = index of
-- the arguments of step x ...}. ids are those of the records, and after them those
-- to be spawned, at item.child.
local function items()
	local list, ids, a = {}, {}, 4
	while a <= #ARGV do
		local item, steps, at = {at = a}, ARGV[a + 2], a + 4
		for i = 1, #steps do
			local step = sub(steps, i, i)
			item[step] = at
			at = at + takes[step]
		end
		list[#list + 1], ids[#ids + 1] = item, ARGV[a]
		a = at
	end
	for _, item in ipairs(list) do
		if item.s then
			ids[#ids + 1] = ARGV[item.s]
			item.child = #ids
		end
	end
	return list, ids
end

local list, ids = items()
local texts = call('hmget', KEYS[2], unpack(ids))

-- same tells whether a stored state is the new one, but for what renewals write.
local function same(stored, new)
	return sub(stored, 1, 17) == sub(new, 1, 17) and sub(stored, 19, 28) == sub(new, 19, 28)
		and sub(stored, 35) == sub(new, 35)
end

-- descends tells whether a stored state is the new one, but for what renewals and
-- leases write.
local function descends(stored, new)
	return sane(stored) and sub(stored, 19, 28) == sub(new, 19, 28) and sub(stored, 35) == sub(new, 35)
end

-- mine tells whether a record whose guard does not fit is as this call leaves it.
local function mine(i, item, text)
	local new, a = item.w or item.k, item.at
	if not new then return false end
	-- Two edits may lead to one state: then the definition tells them apart.
	if item.f and call('hget', KEYS[3], ARGV[a]) ~= ARGV[item.f] then return false end
	if item.s then
		return descends(text, ARGV[new]) and descends(texts[item.child], ARGV[item.s + 2])
	end
	if item.t or (list[i + 1] and list[i + 1].t) then return descends(text, ARGV[new]) end
	return same(text, ARGV[new])
end

-- replaces tells whether what a record spawns takes the place of the one that it
-- is together with, which goes.
local function replaces(i, item)
	return item.t and list[i - 1].d and ids[i - 1] == ids[item.child]
end

local function judge(i, item, text)
	if not text then return '2' end
	if not sane(text) then return item.q and '0' or '4' end
	local a = item.at
	if sub(text, 1, 16) .. sub(text, 19, 28) ~= ARGV[a + 1] then
		return mine(i, item, text) and '5' or '1'
	end
	if item.s and texts[item.child] and not replaces(i, item) then return '1' end
	if item.x then
		local score = call('zscore', KEYS[tonumber(ARGV[a + 3])], ARGV[a])
		if score and tonumber(score) > REGION + clock.ms then return '3' end
	end
	return '0'
end

-- together makes one answer of two: both are written, or were, or neither is.
local function together(i, item, first, second)
	if first == '0' and second == '0' then return first, second end
	if second == '5' then
		local gone = list[i - 1].d and (first == '2' or item.s and replaces(i, item))
		if first == '5' or gone then return '5', '5' end
	end
	if first == '0' or first == '5' then first = '1' end
	if second == '0' or second == '5' then second = '1' end
	return first, second
end

local codes, conflicts = {}, {}
local states, defs, runs = {}, {}, {}             -- HSET
local no_states, no_defs, no_runs = {}, {}, {}    -- HDEL
local scores, aside, leaving = {}, {}, {} -- ZADD, ZADD XX, ZREM; by place
local places, known = {}, {}
local born = {} -- places of spawned records: one may have the name of one that goes

local function touch(k)
	if not known[k] then
		known[k] = true
		places[#places + 1] = k
		scores[k], aside[k], leaving[k] = {}, {}, {}
	end
end

local function push(list, x, y)
	list[#list + 1] = x
	list[#list + 1] = y
end

local function dead_letter(item, lane)
	local c, from = item.c, item.m and tonumber(ARGV[item.m]) or lane
	touch(from)
	if from ~= lane then leaving[from][#leaving[from] + 1] = ARGV[c] end
	push(states, ARGV[c], ARGV[c + 1])
	push(scores[lane], ARGV[c + 2], ARGV[c])
	push(defs, ARGV[c], ARGV[c + 3])
	push(runs, ARGV[c + 4], ARGV[c + 5])
end

local function spawn(item, lane, text)
	local id, to, new, score = ARGV[item.s], tonumber(ARGV[item.s + 1]), ARGV[item.s + 2], ARGV[item.s + 3]
	touch(to)
	if score == '' then
		-- Without an index entry the lease is over at once.
		score = int(tonumber(call('zscore', KEYS[lane], ARGV[item.at]) or REGION))
		new = sub(new, 1, 17) .. sub(text, 18, 18) .. sub(new, 19, 28) .. sub(text, 29, 34) .. sub(new, 35)
	end
	push(states, id, new)
	push(scores[to], score, id)
	born[id] = to
end

-- write plans the writes of a record that was judged good.
local function write(item, text)
	local a = item.at
	local id, lane = ARGV[a], tonumber(ARGV[a + 3])
	touch(lane)
	local to = item.l and tonumber(ARGV[item.l]) or lane
	if to ~= lane then
		touch(to)
		leaving[lane][#leaving[lane] + 1] = id
	end
	if item.w then
		push(states, id, ARGV[item.w])
		push(scores[to], ARGV[item.w + 1], id)
	elseif item.k then
		local new = ARGV[item.k]
		push(states, id, sub(new, 1, 17) .. sub(text, 18, 18) .. sub(new, 19, 28) .. sub(text, 29, 34) .. sub(new, 35))
	elseif item.d then
		no_states[#no_states + 1], no_defs[#no_defs + 1] = id, id
		leaving[lane][#leaving[lane] + 1] = id
	elseif item.u then
		leaving[lane][#leaving[lane] + 1] = id
	elseif item.q then
		push(aside[lane], int(3 * REGION + NEVER), id)
	end
	if item.s then spawn(item, lane, text) end
	if item.f then push(defs, id, ARGV[item.f]) end
	if item.h then push(runs, ARGV[item.h], ARGV[item.h + 1]) end
	if item.c then dead_letter(item, to) end
	if item.z then
		for slot = tonumber(ARGV[item.z]), tonumber(ARGV[item.z + 1]) do
			no_runs[#no_runs + 1] = id .. '.' .. slot
		end
	end
end

for i, item in ipairs(list) do
	codes[i] = item.a and codes[i - 1] ~= '0' and '1' or judge(i, item, texts[i])
	if item.t then codes[i - 1], codes[i] = together(i, item, codes[i - 1], codes[i]) end
end
for i, item in ipairs(list) do
	if codes[i] == '1' then
		conflicts[#conflicts + 1] = texts[i] or ''
	elseif codes[i] == '0' then
		write(item, texts[i])
	end
end

-- left takes out of a list those that are spawned at this place, or anywhere.
local function left(names, place)
	local out = {}
	for _, id in ipairs(names) do
		if not born[id] or place and born[id] ~= place then out[#out + 1] = id end
	end
	return out
end

-- To the destination first, away from the source last.
wide('hset', KEYS[3], defs)
wide('hset', KEYS[4], runs)
wide('hset', KEYS[2], states)
for _, k in ipairs(places) do
	wide('zadd', KEYS[k], scores[k])
	wide('zadd', KEYS[k], aside[k], 'xx')
end
for _, k in ipairs(places) do wide('zrem', KEYS[k], left(leaving[k], k)) end
wide('hdel', KEYS[2], left(no_states))
wide('hdel', KEYS[3], no_defs)
wide('hdel', KEYS[4], no_runs)
local changed, holder = news(KEYS[5], KEYS[6], places)
return {0, clock.us, table.concat(codes), conflicts, changed, holder}
