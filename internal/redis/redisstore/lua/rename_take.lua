-- rename_take.lua: take a job out of the records and lanes, and keep it for a rename.
-- KEYS  1 meta  2 states  3 definitions  4 history  5 index of lanes  6 lock  7 renames  8 revisions
--       9 index of objectives  10 ranking of failing jobs  11 ranking of late jobs  12 renames that have ended
--       13.. lanes of the records
-- ARGV  1-3 common  4 the latest clock at which the call does anything  5 field of the rename  6 entry: the job
--       7 state of the record that keeps the name  8 its score  9 its definition
--       10 field of its request id among the renames that have ended ("" it has none)
--       11.. per record, the job first: id, place of its lane, state as it was read ("" there is no such record),
--       slots of its history
-- Reply {code, clock, digit}
--       0 taken  1 a record has changed  3 taken by an earlier copy of this call  4 too late
--       5 a rename with this request id has ended
-- Guards: all records are as they were read, it is not too late, and no rename with this request id has ended.
-- May be repeated: a job that is kept is not taken again.
if call('hget', KEYS[7], ARGV[5]) then return {0, clock_seen, '3'} end
if clock_ms > tonumber(ARGV[4]) then return {0, clock_seen, '4'} end
if ARGV[10] ~= '' and call('hget', KEYS[12], ARGV[10]) then return {0, clock_seen, '5'} end
local FIRST = 11
local ids, places, known = {}, {}, {}
for a = FIRST, ARGS, 4 do ids[#ids + 1] = ARGV[a] end
local there = call('hmget', KEYS[2], unpack(ids))
for i = 1, #ids do
	if (there[i] or '') ~= ARGV[FIRST + 4 * i - 2] then return {0, clock_seen, '1'} end
end
if record then record({'0'}) end
call('hset', KEYS[7], ARGV[5], ARGV[6])
call('hset', KEYS[3], ids[1], ARGV[9])
call('hset', KEYS[2], ids[1], ARGV[7])
for i = 1, #ids do
	local a = FIRST + 4 * (i - 1)
	if there[i] then
		local k = tonumber(ARGV[a + 1])
		if not known[k] then
			known[k] = true
			places[#places + 1] = k
		end
		if i == 1 then
			call('zadd', KEYS[k], ARGV[8], ids[i])
		else
			call('zrem', KEYS[k], ids[i])
			call('hdel', KEYS[2], ids[i])
			call('hdel', KEYS[3], ids[i])
		end
		local runs = {}
		for slot = 0, tonumber(ARGV[a + 3]) - 1 do runs[#runs + 1] = ids[i] .. '.' .. int(slot) end
		wide('hdel', KEYS[4], runs)
	end
end
call('hdel', KEYS[8], ids[1])
for k = 9, 11 do call('zrem', KEYS[k], ids[1]) end
update_lanes(KEYS[5], KEYS[6], places)
return {0, clock_seen, '0'}
