-- rename_end.lua: replace or remove the entry of a rename, and remove the record that keeps its name.
-- KEYS  1 meta  2 states  3 definitions  4 index of lanes  5 lock  6 renames  7 lane of the record
-- ARGV  1-3 common  4 field of the rename  5 entry that it has ("" none, "*" any)  6 entry that it gets ("" none)
--       7 record that keeps the name  8 id of the rename
-- Reply {code, clock, digit}
--       0 done  1 the rename has another entry
-- Guards: the entry. Only a record that keeps the name for this rename is removed.
-- May be repeated: an entry that is as it is to be counts as done.
local entry = call('hget', KEYS[6], ARGV[4]) or ''
if ARGV[5] ~= '*' and entry ~= ARGV[5] and entry ~= ARGV[6] then return {0, clock_seen, '1'} end
local kept = call('hget', KEYS[2], ARGV[7])
if kept and sub(kept, 35, 35) == '1' and find(kept, ARGV[8], 1, true) then
	call('zrem', KEYS[7], ARGV[7])
	call('hdel', KEYS[2], ARGV[7])
	call('hdel', KEYS[3], ARGV[7])
	update_lanes(KEYS[4], KEYS[5], {7})
end
if ARGV[6] ~= '' then call('hset', KEYS[6], ARGV[4], ARGV[6]) else call('hdel', KEYS[6], ARGV[4]) end
return {0, clock_seen, '0'}
