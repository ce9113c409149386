-- rename_store.lua: store a job that another shard, or this one, keeps for a rename.
-- KEYS  1 meta  2 states  3 definitions  4 history  5 index of lanes  6 lock  7 renames  8 revisions
--       9 index of objectives  10 ranking of failing jobs  11 ranking of late jobs  12.. lanes of the records
-- ARGV  1-3 common  4 field of the rename  5 entry that it has ("*" any)  6 entry that it gets ("" none)
--       7 id of the rename  8 least token of the shard from now on (16 digits)  9 place of the lane of the record that
--       keeps the name  10 revisions ("" none)  11 when to check the objective  12 rank among failing jobs
--       13 among late ones (each "" none)
--       14.. per record, the job first: id, place of its lane, state, score, definition, number of ended runs, and for
--       each its field in the history and text
-- Reply {code, clock, digit, {place, due ... of lanes that became earlier}, lock value, entry that the rename has}
--       0 stored  1 the rename has another entry, or none  2 the id is taken
-- Guards: the entry, and the record that keeps the name; if that is gone, the id is free.
-- May be repeated: the entry changes with the first call.
local entry = call('hget', KEYS[7], ARGV[4])
if not entry or (ARGV[5] ~= '*' and entry ~= ARGV[5]) then return {0, clock_seen, '1', '', '', entry or ''} end
local FIRST = 14
local kept = call('hget', KEYS[2], ARGV[FIRST])
if kept and not (sub(kept, 35, 35) == '1' and find(kept, ARGV[7], 1, true)) then
	return {0, clock_seen, '2', '', '', entry}
end
if ARGV[8] > clock_token then call('hset', KEYS[1], 'c', clock_before .. ARGV[8] .. clock_kind) end
if record then record({'0'}) end
local id, lane, places, known, runs = ARGV[FIRST], tonumber(ARGV[9]), {}, {}, {}
local function touch(k)
	if not known[k] then
		known[k] = true
		places[#places + 1] = k
	end
end
if ARGV[10] ~= '' then call('hset', KEYS[8], id, ARGV[10]) else call('hdel', KEYS[8], id) end
local a = FIRST
while a <= ARGS do
	local k = tonumber(ARGV[a + 1])
	touch(k)
	call('hset', KEYS[3], ARGV[a], ARGV[a + 4])
	call('hset', KEYS[2], ARGV[a], ARGV[a + 2])
	call('zadd', KEYS[k], ARGV[a + 3], ARGV[a])
	local last = a + 5 + 2 * tonumber(ARGV[a + 5])
	for i = a + 6, last do runs[#runs + 1] = ARGV[i] end
	a = last + 1
end
wide('hset', KEYS[4], runs)
for i, value in ipairs({ARGV[11], ARGV[12], ARGV[13]}) do
	if value ~= '' then call('zadd', KEYS[8 + i], value, id) else call('zrem', KEYS[8 + i], id) end
end
touch(lane)
if lane ~= tonumber(ARGV[FIRST + 1]) then call('zrem', KEYS[lane], id) end
if ARGV[6] ~= '' then call('hset', KEYS[7], ARGV[4], ARGV[6]) else call('hdel', KEYS[7], ARGV[4]) end
local earlier, holder = update_lanes(KEYS[5], KEYS[6], places)
return {0, clock_seen, '0', earlier, holder, ARGV[6]}
