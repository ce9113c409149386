-- restore.lua: write a job with all that belongs to it, in one step.
-- KEYS  1 meta  2 states  3 definitions  4 history  5 lanes  6 lock  7.. lanes of the records; among them the
--       index of objectives, if the job has one, and the revisions, if they change
-- ARGV  1-3 common  4 the job's record  5 guard (a pattern: see apply.lua); "" the
--       id must be free  6 place of the lane that it is in now; 0 none
--       7 field of the history ("" none)  8 ended run
--       9 definition  10 place of the index of objectives; 0 none  11 when to look at the
--       job's  12 place of the revisions; 0 they stay  13 revisions to store ("" none), or the definition
--       that is replaced, to be added to them  14 how many they may be then; 0 they replace the stored ones  15 in how
--       many bytes  16 first slot of the job's history to delete  17 first one beyond those
--       18.. per record, the job first: id, place of its lane, state,
--       score, for a dead letter field of the history and run ("" for others), and definition: of a dead letter its own, of
--       a run its own payload; NO_DEFINITION: a dead letter has that of the job, a run none
-- Reply {code, clock, digit, {place, due ... of lanes that became earlier}, lock value}
--       0 written  1 exists, or is another one  2 as 1, deleted but still running
--       3 written by an earlier copy of this call
-- Guards: the job matches the guard. An existing dead letter is kept.
-- May be repeated: a job with the same state and definition is what this call stored.

local function answer(digit, places)
	local list, holder = update_lanes(KEYS[5], KEYS[6], places or {})
	return {0, clock_seen, digit, list, holder}
end

local FIRST, WIDTH, NO_DEFINITION = 18, 7, '-' -- argument of the first record; arguments of each
local id, state = ARGV[4], ARGV[FIRST + 2]
local text = call('hget', KEYS[2], id)
local free, asked = not text and ARGV[5] == '', text and ARGV[5] ~= '' and find(text, ARGV[5])
if not free and not asked then
	if text == state and call('hget', KEYS[3], id) == ARGV[9] then return answer('3') end
	return answer(sane(text) and sub(text, 35, 35) == '1' and '2' or '1')
end

local ids, places, known = {}, {}, {}
for a = FIRST, ARGS, WIDTH do ids[#ids + 1] = ARGV[a] end
local there = call('hmget', KEYS[2], unpack(ids))
local states, defs, runs, scores = {}, {}, {}, {}

local function push(list, x, y)
	list[#list + 1] = x
	list[#list + 1] = y
end

local function touch(k)
	if not known[k] then
		known[k], scores[k] = true, {}
		places[#places + 1] = k
	end
end

for i = 1, #ids do
	local a = FIRST + WIDTH * (i - 1)
	local letter = ARGV[a + 4] ~= ''
	if not (letter and there[i]) then
		local k = tonumber(ARGV[a + 1])
		touch(k)
		push(states, ids[i], ARGV[a + 2])
		push(scores[k], ARGV[a + 3], ids[i])
		local own = ARGV[a + 6]
		if own ~= NO_DEFINITION then
			push(defs, ids[i], own)
		elseif i == 1 or letter then
			push(defs, ids[i], ARGV[9])
		end
		if letter then push(runs, ARGV[a + 4], ARGV[a + 5]) end
	end
end
if ARGV[7] ~= '' then push(runs, ARGV[7], ARGV[8]) end
if record then record({'0'}) end
local revisions = tonumber(ARGV[12])
if revisions ~= 0 then
	local text, most = ARGV[13], tonumber(ARGV[14])
	if most > 0 then
		text = prepend_revision(text, call('hget', KEYS[revisions], id), most, tonumber(ARGV[15]))
	end
	if text == '' then call('hdel', KEYS[revisions], id) else call('hset', KEYS[revisions], id, text) end
end
local gone = {}
for slot = tonumber(ARGV[16]), tonumber(ARGV[17]) - 1 do gone[#gone + 1] = id .. '.' .. int(slot) end
wide('hdel', KEYS[4], gone)
wide('hset', KEYS[3], defs)
wide('hset', KEYS[4], runs)
wide('hset', KEYS[2], states)
for _, k in ipairs(places) do wide('zadd', KEYS[k], scores[k]) end
if ARGV[10] ~= '0' then call('zadd', KEYS[tonumber(ARGV[10])], ARGV[11], id) end
local from = tonumber(ARGV[6])
if from ~= 0 and from ~= tonumber(ARGV[FIRST + 1]) then
	touch(from)
	call('zrem', KEYS[from], id)
end
return answer('0', places)
