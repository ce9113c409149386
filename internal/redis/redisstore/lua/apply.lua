-- apply.lua: compare and set. One script for settling, pausing, editing,
-- deleting, manual runs: what changes is decided by the caller.
-- KEYS  1 meta  2 states  3 definitions  4 history  5 lanes  6 lock  7.. lanes of the records; among them, if
--       a step r names them, failing jobs and late jobs, one after the other, and if a step o
--       or b names it, the index of objectives
-- ARGV  1-3 common  4.. groups of records, a record at most once:
--       steps, place of the lane, number of records, and of each record its id,
--       guard (a pattern: how a header with this token and revision begins) and
--       what each letter of steps asks for. A group of number 0 is one record that is
--       judged with care. Before those come the plain groups: their steps are w, wh, d or
--       dz, and their records concern no other ones.
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
--       r  place, failing, late   ranks among the worst jobs, whose indexes begin there; "" takes it off that index
--       o  place, instant   when to look at its objective, in the index there; "" takes it off
--       b  place, instant   the same of the record that step s writes
-- Reply {code, clock, one digit per record, {states of conflicts}, {place, due ... of lanes that became earlier}, lock value}
--       0 written  1 conflict  2 not found  3 lease has not ended  4 corrupt  5 written by an earlier copy of this call
-- Guards: token and revision are as stored. A record to be spawned does not exist, or
--       is the one that this record is together with, which goes. All records are judged
--       before the first write.
-- May be repeated: a record that has the state (and definition) to be written is one that was written.
--       With what it spawned it may have been leased since; so may two that were written
--       together, and of these the one to be deleted is one that is gone.

-- same tells whether a stored state is the new one, but for what renewals write.
local function same(stored, new)
	return sub(stored, 1, 17) == sub(new, 1, 17) and sub(stored, 19, 28) == sub(new, 19, 28)
		and sub(stored, 35) == sub(new, 35)
end

-- ids are those of all records, and after them those to be spawned.
local ids, records, groups = {}, 0, 0
local a = 4
while a <= ARGS and ARGV[a + 2] ~= '0' do
	local steps, count = ARGV[a], tonumber(ARGV[a + 2])
	local width = steps == 'w' and 4 or steps == 'wh' and 6 or steps == 'd' and 2 or 4
	a = a + 3
	for i = records + 1, records + count do
		ids[i] = ARGV[a]
		a = a + width
	end
	records, groups = records + count, groups + 1
end

-- Items are what is judged with care: {n = number of the record, at = place in ARGV of its id,
-- lane = place, x = place of the arguments of step x ..., child = place in ids of what it spawns}.
local items
if a <= ARGS then
	local takes = {a = 0, t = 0, x = 0, w = 2, k = 1, d = 0, q = 0, u = 0, l = 1, s = 4, f = 1, h = 2, c = 6, m = 1, z = 2, r = 3, o = 2, b = 2}
	items = {}
	while a <= ARGS do
		local steps, item = ARGV[a], {n = records + 1, at = a + 3, lane = tonumber(ARGV[a + 1])}
		a = a + 5
		for i = 1, #steps do
			local step = sub(steps, i, i)
			item[step] = a
			a = a + takes[step]
		end
		records = item.n
		ids[records], items[#items + 1] = ARGV[item.at], item
	end
	local last = records
	for _, item in ipairs(items) do
		if item.s then
			last = last + 1
			ids[last], item.child = ARGV[item.s], last
		end
	end
end

local texts = call('hmget', KEYS[2], unpack(ids))
local codes, conflicts = {}, ''
local states, runs, defs = {}, {}, nil            -- HSET
local no_states, no_defs, no_runs = nil, nil, nil -- HDEL
local places, scores, aside, leaving = {}, {}, nil, nil -- ZADD, ZADD XX, ZREM; by place
local worst, ranked, unranked = 0, nil, nil       -- place, and of each index ZADD, ZREM
local objectives, watched, unwatched = 0, nil, nil -- the same of the index of objectives
local born                                        -- places of spawned records: one may have the name of one that goes

local function conflict(text)
	if conflicts == '' then conflicts = {} end
	conflicts[#conflicts + 1] = text
end

-- Plain groups are nearly all there is to write, so that this is spelled out, and does no
-- more for a record than it takes.
local n, s, r, scored, going = 0, 0, 0, 0, 0
a = 4
for _ = 1, groups do
	local steps, lane, count = ARGV[a], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
	local written, runs_too = byte(steps) == 119, steps == 'wh' -- w
	local width = written and (runs_too and 6 or 4) or steps == 'd' and 2 or 4
	local to, away = scores[lane], leaving and leaving[lane]
	if not to then
		to = {}
		scores[lane] = to
		places[#places + 1] = lane
	end
	if not written and not away then
		leaving, no_states, no_defs, no_runs = leaving or {}, no_states or {}, no_defs or {}, no_runs or {}
		away = {}
		leaving[lane] = away
	end
	a, scored = a + 3, #to
	for i = n + 1, n + count do
		local text, id = texts[i], ARGV[a]
		if not text then
			codes[i] = '2'
		elseif not find(text, ARGV[a + 1]) then
			if not sane(text) then
				codes[i] = '4'
			elseif written and same(text, ARGV[a + 2]) then
				codes[i] = '5'
			else
				codes[i] = '1'
				conflict(text)
			end
		elseif written then
			codes[i] = '0'
			states[s + 1], states[s + 2] = id, ARGV[a + 2]
			to[scored + 1], to[scored + 2] = ARGV[a + 3], id
			s, scored = s + 2, scored + 2
			if runs_too then
				runs[r + 1], runs[r + 2] = ARGV[a + 4], ARGV[a + 5]
				r = r + 2
			end
		else
			codes[i] = '0'
			going = going + 1
			away[#away + 1], no_states[going], no_defs[going] = id, id, id
			if width > 2 then
				for slot = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]) do
					no_runs[#no_runs + 1] = id .. '.' .. slot
				end
			end
		end
		a = a + width
	end
	n = n + count
end

if items then
	defs, aside, leaving, born = {}, {}, leaving or {}, {}
	no_states, no_defs, no_runs = no_states or {}, no_defs or {}, no_runs or {}
	ranked, unranked = {{}, {}}, {{}, {}}
	for _, k in ipairs(places) do aside[k], leaving[k] = {}, leaving[k] or {} end

	-- descends tells whether a stored state is the new one, but for what renewals and
	-- leases write.
	local function descends(stored, new)
		return sane(stored) and sub(stored, 19, 28) == sub(new, 19, 28) and sub(stored, 35) == sub(new, 35)
	end

	-- mine tells whether a record whose guard does not fit is as this call leaves it.
	local function mine(i, item, text)
		local new, at = item.w or item.k, item.at
		if not new then return false end
		-- Two edits may lead to one state: then the definition tells them apart.
		if item.f and call('hget', KEYS[3], ARGV[at]) ~= ARGV[item.f] then return false end
		if item.s then
			return descends(text, ARGV[new]) and descends(texts[item.child], ARGV[item.s + 2])
		end
		if item.t or (items[i + 1] and items[i + 1].t) then return descends(text, ARGV[new]) end
		return same(text, ARGV[new])
	end

	-- replaces tells whether what a record spawns takes the place of the one that it
	-- is together with, which goes.
	local function replaces(i, item)
		return item.t and items[i - 1].d and ids[item.n - 1] == ids[item.child]
	end

	local function judge(i, item, text)
		if not text then return '2' end
		if not sane(text) then return item.q and '0' or '4' end
		if not find(text, ARGV[item.at + 1]) then return mine(i, item, text) and '5' or '1' end
		if item.s and texts[item.child] and not replaces(i, item) then return '1' end
		if item.x then
			local score = call('zscore', KEYS[item.lane], ARGV[item.at])
			if score and tonumber(score) > REGION + clock_ms then return '3' end
		end
		return '0'
	end

	-- together makes one answer of two: both are written, or were, or neither is.
	local function together(i, item, first, second)
		if first == '0' and second == '0' then return first, second end
		if second == '5' then
			local gone = items[i - 1].d and (first == '2' or item.s and replaces(i, item))
			if first == '5' or gone then return '5', '5' end
		end
		if first == '0' or first == '5' then first = '1' end
		if second == '0' or second == '5' then second = '1' end
		return first, second
	end

	local function touch(k)
		if not scores[k] then
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

	local function watch(at, id)
		objectives = tonumber(ARGV[at])
		watched, unwatched = watched or {}, unwatched or {}
		local instant = ARGV[at + 1]
		if instant == '' then unwatched[#unwatched + 1] = id else push(watched, instant, id) end
	end

	-- write plans the writes of a record that was judged good.
	local function write(item, text)
		local id, lane = ARGV[item.at], item.lane
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
		if item.r then
			worst = tonumber(ARGV[item.r])
			for k = 1, 2 do
				local rank = ARGV[item.r + k]
				if rank == '' then unranked[k][#unranked[k] + 1] = id else push(ranked[k], rank, id) end
			end
		end
		if item.o then watch(item.o, id) end
		if item.b then watch(item.b, ARGV[item.s]) end
		if item.z then
			for slot = tonumber(ARGV[item.z]), tonumber(ARGV[item.z + 1]) do
				no_runs[#no_runs + 1] = id .. '.' .. slot
			end
		end
	end

	for i, item in ipairs(items) do
		local at = item.n
		codes[at] = item.a and codes[at - 1] ~= '0' and '1' or judge(i, item, texts[at])
		if item.t then codes[at - 1], codes[at] = together(i, item, codes[at - 1], codes[at]) end
	end
	for _, item in ipairs(items) do
		local text = texts[item.n]
		if codes[item.n] == '1' then
			conflict(text or '')
		elseif codes[item.n] == '0' then
			write(item, text)
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
	if next(born) then
		for _, k in ipairs(places) do leaving[k] = left(leaving[k], k) end
		no_states = left(no_states)
	end
end

if record then record(codes) end

-- To the destination first, away from the source last.
if defs then wide('hset', KEYS[3], defs) end
wide('hset', KEYS[4], runs)
wide('hset', KEYS[2], states)
for _, k in ipairs(places) do
	wide('zadd', KEYS[k], scores[k])
	if aside then wide('zadd', KEYS[k], aside[k], 'xx') end
end
if leaving then
	for _, k in ipairs(places) do wide('zrem', KEYS[k], leaving[k] or {}) end
	wide('hdel', KEYS[2], no_states)
	wide('hdel', KEYS[3], no_defs)
	wide('hdel', KEYS[4], no_runs)
end

-- An index of the worst keeps so many; those with the least rank give way.
local WORST = 1000
for k = 1, worst > 0 and 2 or 0 do
	local key = KEYS[worst + k - 1]
	wide('zrem', key, unranked[k])
	if #ranked[k] > 0 then
		wide('zadd', key, ranked[k])
		local over = call('zcard', key) - WORST
		if over > 0 then wide('zrem', key, call('zrange', key, '0', int(over - 1))) end
	end
end
if watched then
	wide('zadd', KEYS[objectives], watched)
	wide('zrem', KEYS[objectives], unwatched)
end
local changed, holder = news(KEYS[5], KEYS[6], places)
return {0, clock_seen, table.concat(codes, '', 1, records), conflicts, changed, holder}
