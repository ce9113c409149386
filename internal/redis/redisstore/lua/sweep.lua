-- sweep.lua: delete finished records whose time has come, with all that they own. It deletes those of which the state
-- shows all that is needed, which are nearly all, and lists the others.
-- KEYS  1 meta  2 states  3 definitions  4 history  5 lanes  6 lock  7 revisions  8.. lanes to look at
-- ARGV  1-3 common  4 lock value  5 most records to delete and list  6.. of each lane: how the tail of each of its
--       states begins in tails of version 1, and in those of later versions
-- Reply {code, clock, {place of the lane of each}, {records}, {states}, {corrupt records}, number of deleted records,
--       {place, due ... of lanes that became earlier}, lock value}
--       The lists are of the records that were not deleted, as in reap.lua.
-- Guards: the lock has the caller's value. A record is deleted only if its state is in the region and the lane of its
--       entry, and if all fields of that state are known here. A record without a sane state is moved out of the way,
--       to the dead region for ever, and reported.
-- May be repeated: what was deleted is not found again. The number counts only what this copy has deleted.
if call('get', KEYS[6]) ~= ARGV[4] then return {2, clock_seen} end

local FIRST_LANE, DEAD, DONE = 8, 3, 4
local FULL_TAIL, LAST_TAIL = 49, 51 -- the characters of versions 1 and 3
local LAST_OUTCOME = 7              -- the greatest known one
local MAX_SLOTS = 8                 -- of the history of a record that is deleted here

-- The fields of a state that only counts what has ended. Those before its texts, which are optional, and those after
-- them, of which one has the number of ended runs and one the last outcome. These patterns match any text without
-- going back in it: what they match ends at the first other field.
local FIELDS_BEFORE_TEXTS = '^g?%d*L?%-?%d*F?%d*S?%-?%d*E?%-?%d*'
local ERROR_FIELD = '^e(%d+):'
local KEPT_RUN_FIELD = '^;(%d+):' -- a run that the state keeps in place of the history
local FIELDS_AFTER_TEXTS = '^K?%-?%d*r?(%d*)k?%d*J?%d*o?(%d*)x?%d*y?%d*j?%d*X?%d*%^?%d*'

-- runs_of_ended is the number of runs that the history has of a record in a region and lane; nil if its state has
-- something else, so that more than the state is needed for its deletion.
local function runs_of_ended(text, region, lane_fields)
	local version = byte(text, 36)
	if byte(text, 17) ~= 48 + region or byte(text, 35) ~= 48 or version < FULL_TAIL or version > LAST_TAIL then return nil end
	local from = 37 + #lane_fields
	if sub(text, 37, from - 1) ~= lane_fields then return nil end
	local _, at = find(text, FIELDS_BEFORE_TEXTS, from)
	local _, colon, length = find(text, ERROR_FIELD, at + 1)
	if colon then at = colon + length end
	local _, kept, size = find(text, KEPT_RUN_FIELD, at + 1)
	if kept then at = kept + size end
	if at > #text then return nil end
	local _, last, runs, outcome = find(text, FIELDS_AFTER_TEXTS, at + 1)
	if last < #text or (tonumber(outcome) or 0) > LAST_OUTCOME then return nil end
	return kept and runs == '1' and 0 or tonumber(runs) or 0
end

local left = tonumber(ARGV[5])
local places, records, states, corrupt = {}, {}, {}, {}
local deleted, fields, changed = {}, {}, {}

for k = FIRST_LANE, #KEYS do
	local a = 6 + 2 * (k - FIRST_LANE)
	local full_fields, sparse_fields = ARGV[a], ARGV[a + 1]
	for region = DEAD, DONE do
		local from = region * REGION
		local ids = left > 0 and call('zrange', KEYS[k], int(from), int(from + clock_ms), 'byscore', 'limit', '0', int(left)) or {}
		if #ids > 0 then
			left = left - #ids
			local removals, bad = {}, {}
			for i, text in ipairs(call('hmget', KEYS[2], unpack(ids))) do
				local id, runs = ids[i], nil
				local is_sane = sane(text)
				if is_sane and not find(id, '#', 1, true) then
					runs = runs_of_ended(text, region, byte(text, 36) == FULL_TAIL and full_fields or sparse_fields)
				end
				if not is_sane then
					corrupt[#corrupt + 1] = id
					bad[#bad + 1], bad[#bad + 2] = int(3 * REGION + NEVER), id
				elseif runs and runs <= MAX_SLOTS then
					removals[#removals + 1] = id
					for slot = 0, runs - 1 do fields[#fields + 1] = id .. '.' .. slot end
				else
					places[#places + 1], records[#records + 1], states[#states + 1] = k, id, text
				end
			end
			if #bad > 0 then call('zadd', KEYS[k], 'xx', unpack(bad)) end
			if #removals > 0 then
				call('zrem', KEYS[k], unpack(removals))
				deleted[#deleted + 1] = removals
				if changed[#changed] ~= k then changed[#changed + 1] = k end
			end
		end
	end
end

local count = 0
for _, ids in ipairs(deleted) do
	count = count + #ids
	call('hdel', KEYS[2], unpack(ids))
	call('hdel', KEYS[3], unpack(ids))
	-- Most jobs are never edited.
	if call('hlen', KEYS[7]) > 0 then call('hdel', KEYS[7], unpack(ids)) end
end
wide('hdel', KEYS[4], fields)
local earlier, holder = update_lanes(KEYS[5], KEYS[6], changed)
return {0, clock_seen, places, records, states, corrupt, count, earlier, holder}
