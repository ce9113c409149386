-- clock.lua: move the shard's clock and read the index of lanes.
-- KEYS  1 meta  2 lanes
-- ARGV  1-3 common  4 most lanes to list  5 ms within which they are due (left out: whenever)
-- Reply {code, clock, {lane, due, lane, due ...}}
-- May be repeated: the clock only grows.
local last, within = tonumber(ARGV[4]) - 1, ARGV[5]
if last < 0 then return {0, clock_seen, {}} end
if within then
	local till = int(clock_ms + tonumber(within))
	return {0, clock_seen, call('zrange', KEYS[2], '-inf', till, 'byscore', 'limit', '0', int(last + 1), 'withscores')}
end
return {0, clock_seen, call('zrange', KEYS[2], '0', int(last), 'withscores')}
