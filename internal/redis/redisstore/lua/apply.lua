-- apply.lua: compare and set. One script settles, pauses, edits and deletes records and
-- starts manual runs: the caller decides what changes.
-- The names STEP_... and PLAIN_... are macros. apply_steps.go defines them for Go and for this
-- file; the loader replaces each by a letter, a literal or a number, so that they cost nothing.
-- KEYS  1 meta  2 states  3 definitions  4 history, if a record has a step about it  5 lanes  6 lock  7.. lanes of
--       the records.
--       Among these are the rankings, failing and late jobs one after the other, if a record has
--       STEP_RANK; the index of objectives, if one has STEP_WATCH or STEP_WATCH_SPAWNED; the
--       revisions, if one has STEP_REVISE or STEP_FORGET; and if one has STEP_UNSUCCESSFUL, the
--       indexes of unsuccessful runs and the set of their queues
-- ARGV  1-3 common  4.. groups of records, each record at most once. A group is: its steps as
--       one text, place of the lane, number of records, and for each record its id, its guard
--       (a pattern: how a header with this token and revision begins), and the arguments of
--       each step. Plain groups come first: their steps are one of PLAIN_..., and no record of
--       theirs concerns another one. A group of number 0 is one general item.
--       The steps, in this file's letters:
--       STEP_ONLY_AFTER  only if the record before it in ARGV was written
--       STEP_TOGETHER    together with the record before it in ARGV: both are written, or neither
--       STEP_IF_EXPIRED  only if the lease has ended
--       STEP_WRITE       state, score: write both
--       STEP_KEEP_LEASE  state: write it; score, session and acknowledgement stay as stored
--       STEP_DELETE      delete state and definition
--       STEP_SET_ASIDE   an unreadable record: move it to the dead region for ever
--       STEP_LEAVE_LANE  remove it from this lane, because its state names another one
--       STEP_MOVE        place: move to the lane there
--       STEP_SPAWN       id, place, state, score: write a new record into the lane there; with
--                        score "" it takes over the lease: score, session and acknowledgement
--                        are those that this record has now
--       STEP_SPAWN_PAYLOAD  payload: the spawned record has this payload of its own; its id is not that of a record that
--                        is deleted
--       STEP_DEFINE      definition: write it
--       STEP_HISTORY     field, run: write into the history
--       STEP_EARLIER_RUN field, run: write a run into the history that the state has kept until now
--       STEP_LETTER      id, state, score, definition, field, run: write a dead letter into the lane
--       STEP_LETTER_FROM place: the dead letter has been in the lane there so far
--       STEP_LETTER_PAYLOAD  id: the definition of the dead letter ends with the payload that this run has of its own
--       STEP_TRIM        first, last: delete these history slots
--       STEP_MOVE_RUNS   limit of the history before, limit after, runs that have ended: move the latest runs to their
--                        slots in a history of the other length. Slots beyond that are those of STEP_TRIM
--       STEP_RANK        place, failing, late: ranks in the rankings that begin there; "" removes
--                        the record from that ranking
--       STEP_WATCH       place, instant: when to check its objective, in the index there; "" removes it
--       STEP_WATCH_SPAWNED  place, instant: the same for the record that STEP_SPAWN writes
--       STEP_REVISE      place, revision, most, room: add the definition that is replaced to the revisions there,
--                        of which the newest are kept: so many, in so many bytes
--       STEP_FORGET      place: delete the revisions
--       STEP_UNSUCCESSFUL   place, place of queues, entries, age, end, run, other run or "": add to the index of
--                        unsuccessful runs there, which keeps so many entries, and for so many milliseconds
-- Reply {code, clock, one digit per record, {states of conflicts}, {place, due ... of lanes that became earlier}, lock value}
--       0 written  1 conflict  2 not found  3 lease has not ended  4 corrupt  5 written by an earlier copy of this call
-- Guards: token and revision are as stored. A record to be spawned does not exist, or is the one
--       that this record is together with, which is deleted. All records are checked before the first write.
-- May be repeated: a record that has the state (and definition) to be written counts as written.
--       What was spawned with it, and two records that were written together, may have been leased
--       since. If one of the two was to be deleted, it counts as written when it is gone.
-- There are two paths. Nearly all records settle a run in one of four ways (the plain groups), and
--       the first loop does no more for such a record than it takes: no table per record, no step
--       is looked up. Everything else (edits, spawned runs, dead letters, pairs) is a general item,
--       whose steps are parsed into a table. A plain group means the same as its steps as items.

-- same_state compares a stored state with the new one, except for what renewals write.
local function same_state(stored, new)
	return sub(stored, 1, 17) == sub(new, 1, 17) and sub(stored, 19, 28) == sub(new, 19, 28)
		and sub(stored, 35) == sub(new, 35)
end

-- ids are those of all records, followed by those to be spawned.
local ids, records, groups = {}, 0, 0
local a = 4
while a <= ARGS and ARGV[a + 2] ~= '0' do
	local steps, count = ARGV[a], tonumber(ARGV[a + 2])
	local width = steps == PLAIN_WRITE and PLAIN_WRITE_WIDTH or steps == PLAIN_WRITE_HISTORY and PLAIN_WRITE_HISTORY_WIDTH
		or steps == PLAIN_DELETE and PLAIN_DELETE_WIDTH or PLAIN_DELETE_TRIM_WIDTH
	a = a + 3
	for i = records + 1, records + count do
		ids[i] = ARGV[a]
		a = a + width
	end
	records, groups = records + count, groups + 1
end

-- An item is a record of a general group: {number = that of the record, at = place in ARGV of its id,
-- lane = place, each of its steps = place of its arguments ..., child = place in ids of what it spawns}.
local items
if a <= ARGS then
	local argument_counts = STEP_ARGUMENTS
	items = {}
	while a <= ARGS do
		local steps, item = ARGV[a], {number = records + 1, at = a + 3, lane = tonumber(ARGV[a + 1])}
		a = a + 5
		for i = 1, #steps do
			local step = sub(steps, i, i)
			item[step] = a
			a = a + argument_counts[step]
		end
		records = item.number
		ids[records], items[#items + 1] = ARGV[item.at], item
	end
	local last = records
	for _, item in ipairs(items) do
		if item.STEP_SPAWN then
			last = last + 1
			ids[last], item.child = ARGV[item.STEP_SPAWN], last
		end
	end
end

local stored_states = call('hmget', KEYS[2], unpack(ids))
local codes, conflicts = {}, ''
local states, runs, defs = {}, {}, nil            -- HSET
local state_deletes, definition_deletes, run_deletes = nil, nil, nil -- HDEL
local places, scores, set_aside, lane_removals = {}, {}, nil, nil -- ZADD, ZADD XX, ZREM; by place
local index_places, indexed = {}, {}              -- lanes whose first due time may have changed
local ranking_place, rank_updates, rank_removals = 0, nil, nil       -- place, and of each ranking ZADD, ZREM
local objectives_place, watch_updates, watch_removals = 0, nil, nil -- the same of the index of objectives
local revisions_place, revisions, revision_deletes = 0, nil, nil    -- place, HSET, HDEL
local unsuccessful                                      -- {first item, other items ...}
local spawned_in                                        -- places of spawned records: one may have the id of one that is deleted

local function add_conflict(text)
	if conflicts == '' then conflicts = {} end
	conflicts[#conflicts + 1] = text
end

-- The plain groups. This loop runs once per settled run: keep it free of tables and lookups.
local n, s, r, scored, deleted = 0, 0, 0, 0, 0
a = 4
for _ = 1, groups do
	local steps, lane, count = ARGV[a], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
	local writes, adds_history = byte(steps) == STEP_WRITE_BYTE, steps == PLAIN_WRITE_HISTORY
	local width = writes and (adds_history and PLAIN_WRITE_HISTORY_WIDTH or PLAIN_WRITE_WIDTH)
		or steps == PLAIN_DELETE and PLAIN_DELETE_WIDTH or PLAIN_DELETE_TRIM_WIDTH
	local to, removals = scores[lane], lane_removals and lane_removals[lane]
	if not to then
		to = {}
		scores[lane] = to
		places[#places + 1] = lane
	end
	if not writes and not removals then
		lane_removals, state_deletes, definition_deletes, run_deletes = lane_removals or {}, state_deletes or {}, definition_deletes or {}, run_deletes or {}
		removals = {}
		lane_removals[lane] = removals
	end
	a, scored = a + 3, #to
	-- A record that leaves the region of leases for one beyond it changes no due time.
	local moves_due = not writes
	for i = n + 1, n + count do
		local text, id = stored_states[i], ARGV[a]
		if not text then
			codes[i] = '2'
		elseif not find(text, ARGV[a + 1]) then
			if not sane(text) then
				codes[i] = '4'
			elseif writes and same_state(text, ARGV[a + 2]) then
				codes[i], moves_due = '5', true
			else
				codes[i] = '1'
				add_conflict(text)
			end
		elseif writes then
			codes[i] = '0'
			moves_due = moves_due or byte(text, 17) ~= 49 or byte(ARGV[a + 2], 17) < 50
			states[s + 1], states[s + 2] = id, ARGV[a + 2]
			to[scored + 1], to[scored + 2] = ARGV[a + 3], id
			s, scored = s + 2, scored + 2
			if adds_history then
				runs[r + 1], runs[r + 2] = ARGV[a + 4], ARGV[a + 5]
				r = r + 2
			end
		else
			codes[i] = '0'
			deleted = deleted + 1
			removals[#removals + 1], state_deletes[deleted], definition_deletes[deleted] = id, id, id
			if width > PLAIN_DELETE_WIDTH then
				for slot = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]) do
					run_deletes[#run_deletes + 1] = id .. '.' .. slot
				end
			end
		end
		a = a + width
	end
	n = n + count
	if moves_due and not indexed[lane] then
		indexed[lane], index_places[#index_places + 1] = true, lane
	end
end

if items then
	index_places = places
	defs, set_aside, lane_removals, spawned_in = {}, {}, lane_removals or {}, {}
	state_deletes, definition_deletes, run_deletes = state_deletes or {}, definition_deletes or {}, run_deletes or {}
	rank_updates, rank_removals = {{}, {}}, {{}, {}}
	for _, k in ipairs(places) do set_aside[k], lane_removals[k] = {}, lane_removals[k] or {} end

	-- same_revision compares a stored state with the new one, except for what renewals and
	-- leases write.
	local function same_revision(stored, new)
		return sane(stored) and sub(stored, 19, 28) == sub(new, 19, 28) and sub(stored, 35) == sub(new, 35)
	end

	-- written_by_this_call: the guard of a record does not match because an earlier copy of this
	-- call has written it.
	local function written_by_this_call(i, item, text)
		local new, at = item.STEP_WRITE or item.STEP_KEEP_LEASE, item.at
		if not new then return false end
		-- Two edits may lead to the same state: then their definitions differ.
		if item.STEP_DEFINE and call('hget', KEYS[3], ARGV[at]) ~= ARGV[item.STEP_DEFINE] then return false end
		if item.STEP_SPAWN then
			return same_revision(text, ARGV[new]) and same_revision(stored_states[item.child], ARGV[item.STEP_SPAWN + 2])
		end
		if item.STEP_TOGETHER or (items[i + 1] and items[i + 1].STEP_TOGETHER) then return same_revision(text, ARGV[new]) end
		return same_state(text, ARGV[new])
	end

	-- replaces_partner: what a record spawns has the id of the record that it is together
	-- with, which is deleted.
	local function replaces_partner(i, item)
		return item.STEP_TOGETHER and items[i - 1].STEP_DELETE and ids[item.number - 1] == ids[item.child]
	end

	local function check(i, item, text)
		if not text then return '2' end
		if not sane(text) then return item.STEP_SET_ASIDE and '0' or '4' end
		if not find(text, ARGV[item.at + 1]) then return written_by_this_call(i, item, text) and '5' or '1' end
		if item.STEP_SPAWN and stored_states[item.child] and not replaces_partner(i, item) then return '1' end
		if item.STEP_IF_EXPIRED then
			local score = call('zscore', KEYS[item.lane], ARGV[item.at])
			if score and tonumber(score) > REGION + clock_ms then return '3' end
		end
		return '0'
	end

	-- combine_codes makes the codes of two records agree: both are written, or were, or neither is.
	local function combine_codes(i, item, first, second)
		if first == '0' and second == '0' then return first, second end
		if second == '5' then
			local gone = items[i - 1].STEP_DELETE and (first == '2' or item.STEP_SPAWN and replaces_partner(i, item))
			if first == '5' or gone then return '5', '5' end
		end
		if first == '0' or first == '5' then first = '1' end
		if second == '0' or second == '5' then second = '1' end
		return first, second
	end

	local function use_lane(k)
		if not scores[k] then
			places[#places + 1] = k
			scores[k], set_aside[k], lane_removals[k] = {}, {}, {}
		end
	end

	local function append_pair(list, x, y)
		list[#list + 1] = x
		list[#list + 1] = y
	end

	local function write_dead_letter(item, lane)
		local c, from = item.STEP_LETTER, item.STEP_LETTER_FROM and tonumber(ARGV[item.STEP_LETTER_FROM]) or lane
		use_lane(from)
		if from ~= lane then lane_removals[from][#lane_removals[from] + 1] = ARGV[c] end
		append_pair(states, ARGV[c], ARGV[c + 1])
		append_pair(scores[lane], ARGV[c + 2], ARGV[c])
		local own = item.STEP_LETTER_PAYLOAD and call('hget', KEYS[3], ARGV[item.STEP_LETTER_PAYLOAD]) or ''
		append_pair(defs, ARGV[c], ARGV[c + 3] .. own)
		append_pair(runs, ARGV[c + 4], ARGV[c + 5])
	end

	local function write_spawned(item, lane, text)
		local id, to, new, score = ARGV[item.STEP_SPAWN], tonumber(ARGV[item.STEP_SPAWN + 1]), ARGV[item.STEP_SPAWN + 2], ARGV[item.STEP_SPAWN + 3]
		use_lane(to)
		if score == '' then
			-- Without an index entry the lease ends at once.
			score = int(tonumber(call('zscore', KEYS[lane], ARGV[item.at]) or REGION))
			new = sub(new, 1, 17) .. sub(text, 18, 18) .. sub(new, 19, 28) .. sub(text, 29, 34) .. sub(new, 35)
		end
		append_pair(states, id, new)
		append_pair(scores[to], score, id)
		if item.STEP_SPAWN_PAYLOAD then append_pair(defs, id, ARGV[item.STEP_SPAWN_PAYLOAD]) end
		spawned_in[id] = to
	end

	local function watch_objective(at, id)
		objectives_place = tonumber(ARGV[at])
		watch_updates, watch_removals = watch_updates or {}, watch_removals or {}
		local instant = ARGV[at + 1]
		if instant == '' then watch_removals[#watch_removals + 1] = id else append_pair(watch_updates, instant, id) end
	end

	local function add_revision(at, id)
		revisions_place, revisions = tonumber(ARGV[at]), revisions or {}
		local stored = call('hget', KEYS[revisions_place], id)
		append_pair(revisions, id, prepend_revision(ARGV[at + 1], stored, tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])))
	end

	-- move_runs: the run of number n, counted from 0, is in slot n % limit. With ends, a run ends now, whose slot is the
	-- next one.
	local function move_runs(at, id, ends)
		local before, after, ended = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
		local slots, written, common = {}, {}, math.min(before, after)
		for slot = 0, before - 1 do slots[slot + 1] = id .. '.' .. slot end
		local texts = call('hmget', KEYS[4], unpack(slots))
		for number = math.max(0, ended - common), ended - 1 do
			local text, slot = texts[number % before + 1], number % after
			if text then
				append_pair(runs, id .. '.' .. int(slot), text)
				written[slot] = true
			end
		end
		if ends then written[ended % after] = true end
		for slot = 0, common - 1 do
			if texts[slot + 1] and not written[slot] then run_deletes[#run_deletes + 1] = slots[slot + 1] end
		end
	end

	-- plan_writes collects the writes of a record that passed its checks.
	local function plan_writes(item, text)
		local id, lane = ARGV[item.at], item.lane
		use_lane(lane)
		local to = item.STEP_MOVE and tonumber(ARGV[item.STEP_MOVE]) or lane
		if to ~= lane then
			use_lane(to)
			lane_removals[lane][#lane_removals[lane] + 1] = id
		end
		if item.STEP_WRITE then
			append_pair(states, id, ARGV[item.STEP_WRITE])
			append_pair(scores[to], ARGV[item.STEP_WRITE + 1], id)
		elseif item.STEP_KEEP_LEASE then
			local new = ARGV[item.STEP_KEEP_LEASE]
			append_pair(states, id, sub(new, 1, 17) .. sub(text, 18, 18) .. sub(new, 19, 28) .. sub(text, 29, 34) .. sub(new, 35))
		elseif item.STEP_DELETE then
			state_deletes[#state_deletes + 1], definition_deletes[#definition_deletes + 1] = id, id
			lane_removals[lane][#lane_removals[lane] + 1] = id
		elseif item.STEP_LEAVE_LANE then
			lane_removals[lane][#lane_removals[lane] + 1] = id
		elseif item.STEP_SET_ASIDE then
			append_pair(set_aside[lane], int(3 * REGION + NEVER), id)
		end
		if item.STEP_SPAWN then write_spawned(item, lane, text) end
		if item.STEP_DEFINE then append_pair(defs, id, ARGV[item.STEP_DEFINE]) end
		if item.STEP_REVISE then add_revision(item.STEP_REVISE, id) end
		if item.STEP_FORGET then
			revisions_place, revision_deletes = tonumber(ARGV[item.STEP_FORGET]), revision_deletes or {}
			revision_deletes[#revision_deletes + 1] = id
		end
		if item.STEP_MOVE_RUNS then move_runs(item.STEP_MOVE_RUNS, id, item.STEP_HISTORY) end
		if item.STEP_HISTORY then append_pair(runs, ARGV[item.STEP_HISTORY], ARGV[item.STEP_HISTORY + 1]) end
		if item.STEP_EARLIER_RUN then append_pair(runs, ARGV[item.STEP_EARLIER_RUN], ARGV[item.STEP_EARLIER_RUN + 1]) end
		if item.STEP_LETTER then write_dead_letter(item, to) end
		if item.STEP_RANK then
			ranking_place = tonumber(ARGV[item.STEP_RANK])
			for k = 1, 2 do
				local rank = ARGV[item.STEP_RANK + k]
				if rank == '' then rank_removals[k][#rank_removals[k] + 1] = id else append_pair(rank_updates[k], rank, id) end
			end
		end
		if item.STEP_WATCH then watch_objective(item.STEP_WATCH, id) end
		if item.STEP_WATCH_SPAWNED then watch_objective(item.STEP_WATCH_SPAWNED, ARGV[item.STEP_SPAWN]) end
		if item.STEP_UNSUCCESSFUL then
			unsuccessful = unsuccessful or {}
			unsuccessful[#unsuccessful + 1] = item.STEP_UNSUCCESSFUL
		end
		if item.STEP_TRIM then
			for slot = tonumber(ARGV[item.STEP_TRIM]), tonumber(ARGV[item.STEP_TRIM + 1]) do
				run_deletes[#run_deletes + 1] = id .. '.' .. slot
			end
		end
	end

	for i, item in ipairs(items) do
		local at = item.number
		codes[at] = item.STEP_ONLY_AFTER and codes[at - 1] ~= '0' and '1' or check(i, item, stored_states[at])
		if item.STEP_TOGETHER then codes[at - 1], codes[at] = combine_codes(i, item, codes[at - 1], codes[at]) end
	end
	for _, item in ipairs(items) do
		local text = stored_states[item.number]
		if codes[item.number] == '1' then
			add_conflict(text or '')
		elseif codes[item.number] == '0' then
			plan_writes(item, text)
		end
	end

	-- without_spawned drops from a list the ids that are spawned in this lane, or in any.
	local function without_spawned(names, place)
		local out = {}
		for _, id in ipairs(names) do
			if not spawned_in[id] or place and spawned_in[id] ~= place then out[#out + 1] = id end
		end
		return out
	end
	if next(spawned_in) then
		for _, k in ipairs(places) do lane_removals[k] = without_spawned(lane_removals[k], k) end
		state_deletes = without_spawned(state_deletes)
	end
end

if record then record(codes) end

-- Write to the destination first, remove from the source last.
if revisions then wide('hset', KEYS[revisions_place], revisions) end
if defs then wide('hset', KEYS[3], defs) end
wide('hset', KEYS[4], runs)
wide('hset', KEYS[2], states)
for _, k in ipairs(places) do
	wide('zadd', KEYS[k], scores[k])
	if set_aside then wide('zadd', KEYS[k], set_aside[k], 'xx') end
end
if lane_removals then
	for _, k in ipairs(places) do wide('zrem', KEYS[k], lane_removals[k] or {}) end
	wide('hdel', KEYS[2], state_deletes)
	wide('hdel', KEYS[3], definition_deletes)
	wide('hdel', KEYS[4], run_deletes)
end

if revision_deletes then wide('hdel', KEYS[revisions_place], revision_deletes) end

-- A ranking keeps this many records; those with the lowest rank are removed.
local MAX_RANKED = 1000
for k = 1, ranking_place > 0 and 2 or 0 do
	local key = KEYS[ranking_place + k - 1]
	wide('zrem', key, rank_removals[k])
	if #rank_updates[k] > 0 then
		wide('zadd', key, rank_updates[k])
		local surplus = call('zcard', key) - MAX_RANKED
		if surplus > 0 then wide('zrem', key, call('zrange', key, '0', int(surplus - 1))) end
	end
end
if watch_updates then
	wide('zadd', KEYS[objectives_place], watch_updates)
	wide('zrem', KEYS[objectives_place], watch_removals)
end

-- Add entries to the indexes of unsuccessful runs. In each, remove the oldest ones beyond its bounds, at most 1,000
-- beyond that of age. An index that is no longer written expires.
if unsuccessful then
	local indexes, entries, last_end = {}, {}, clock_ms
	for _, at in ipairs(unsuccessful) do
		local k = tonumber(ARGV[at])
		local list = entries[k]
		if not list then
			list = {}
			indexes[#indexes + 1], entries[k] = k, list
		end
		for i = at + 5, ARGV[at + 6] == '' and at + 5 or at + 6 do
			list[#list + 1] = ARGV[at + 4]
			list[#list + 1] = ARGV[i]
		end
		last_end = math.max(last_end, tonumber(ARGV[at + 4]))
	end
	local at = unsuccessful[1]
	local queues, most, age = KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2]), ARGV[at + 3]
	local oldest = '(' .. int(clock_ms - tonumber(age))
	for _, k in ipairs(indexes) do
		local key = KEYS[k]
		wide('zadd', key, entries[k])
		wide('zrem', key, call('zrange', key, '-inf', oldest, 'byscore', 'limit', '0', '1000'))
		local surplus = call('zcard', key) - most
		if surplus > 0 then wide('zrem', key, call('zrange', key, '0', int(surplus - 1))) end
		call('pexpire', key, age)
		call('zadd', queues, int(last_end), sub(key, #queues + 2))
	end
	wide('zrem', queues, call('zrange', queues, '-inf', oldest, 'byscore', 'limit', '0', '1000'))
	call('pexpire', queues, age)
end
local changed, holder = update_lanes(KEYS[5], KEYS[6], index_places)
return {0, clock_seen, table.concat(codes, '', 1, records), conflicts, changed, holder}
