-- mend.lua: take out what refers to records that do not exist, and bring the
-- index of lanes in line with the lanes.
-- KEYS  1 meta  2 states  3 history, or revisions  4 index of lanes  5 lock  6.. lanes
-- ARGV  1-3 common  4.. per item: record, place of its lane in KEYS, or "" and then the field of the third key
-- Reply {code, clock, one digit per item: 1 taken out, {place, due ... of lanes that became earlier}, lock value}
-- Guards: a record that has a state is left alone.
-- May be repeated.

local done = {}
for a = 4, #ARGV, 3 do
	local gone = 0
	if not call('hget', KEYS[2], ARGV[a]) then
		if ARGV[a + 1] ~= '' then
			gone = call('zrem', KEYS[tonumber(ARGV[a + 1])], ARGV[a])
		else
			gone = call('hdel', KEYS[3], ARGV[a + 2])
		end
	end
	done[#done + 1] = int(gone)
end
local places = {}
for k = 6, #KEYS do places[#places + 1] = k end
local earlier, holder = update_lanes(KEYS[4], KEYS[5], places)
return {0, clock_seen, table.concat(done), earlier, holder}
