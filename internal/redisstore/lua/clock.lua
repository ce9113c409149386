-- clock.lua: move the shard's clock and read the index of lanes.
-- KEYS  1 meta  2 lanes
-- ARGV  1-3 common  4 most lanes to list
-- Reply {code, clock, {lane, due, lane, due ...}}
-- May be repeated: the clock only grows.
local last = tonumber(ARGV[4]) - 1
if last < 0 then return {0, clock_us, {}} end
return {0, clock_us, call('zrange', KEYS[2], '0', int(last), 'withscores')}
