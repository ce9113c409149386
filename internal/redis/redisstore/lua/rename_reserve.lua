-- rename_reserve.lua: reserve a name for a rename.
-- KEYS  1 meta  2 states  3 definitions  4 index of lanes  5 lock  6 renames  7 lane of the record
-- ARGV  1-3 common  4 the latest clock at which the call does anything  5 record that keeps the name  6 its state
--       7 score  8 definition  9 field of the rename  10 entry of the rename
-- Reply {code, clock, digit}
--       0 reserved  1 exists  2 exists, deleted but still running, or keeps the name for another rename
--       3 reserved by an earlier copy of this call  4 too late, or the rename has ended
-- Guards: the id is free, the rename is unknown, and it is not too late.
-- May be repeated: a rename that is known is not begun again.
local known = call('hget', KEYS[6], ARGV[9])
if known then return {0, clock_seen, known == ARGV[10] and '3' or '4'} end
if clock_ms > tonumber(ARGV[4]) then return {0, clock_seen, '4'} end
local text = call('hget', KEYS[2], ARGV[5])
if text then return {0, clock_seen, sane(text) and sub(text, 35, 35) == '1' and '2' or '1'} end
call('hset', KEYS[6], ARGV[9], ARGV[10])
call('hset', KEYS[3], ARGV[5], ARGV[8])
call('hset', KEYS[2], ARGV[5], ARGV[6])
call('zadd', KEYS[7], ARGV[7], ARGV[5])
update_lanes(KEYS[4], KEYS[5], {7})
return {0, clock_seen, '0'}
