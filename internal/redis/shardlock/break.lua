-- break.lua: take the lock of a holder that stopped refreshing.
-- KEYS  1 the lock
-- ARGV  1 the value that was read  2 the value to put in its place
--       3 TTL to set, ms           4 PTTL at or above which the holder lives, ms
-- Reply 1 the lock has the new value, 0 refused: another value, or refreshed
-- May be repeated: a lock that already has the new value answers 1.
local value = redis.call('get', KEYS[1])
if value == ARGV[2] then
	return 1
end
if value ~= ARGV[1] or redis.call('pttl', KEYS[1]) >= tonumber(ARGV[4]) then
	return 0
end
redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
return 1
