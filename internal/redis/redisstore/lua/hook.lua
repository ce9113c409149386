-- hook.lua: store how far a webhook is with a shard, and what it gave up on. It needs
-- no clock, so it has none of the common arguments.
-- KEYS  1 lock  2 states of webhooks  3 what this one gave up on, by time, if there is a letter
-- ARGV  1 lock value  2 name of the webhook  3 state  4 how many letters are kept: fewer if they are large
--       5 time and 6 text of a letter, if there is one
-- Reply {code, letters that had to go because there are newer ones}
--       0 stored  2 not the holder
-- Guards: the lock has the caller's value.
-- May be repeated: a letter that is there is the same one, and what had to go has gone.

-- The letters may have MEAN bytes each on average. The average is that of SAMPLE letters.
local MEAN, SAMPLE = 1024, 16

-- kept returns how many letters may stay.
local function kept(letters, most)
	local bytes = 0
	for i = 0, SAMPLE - 1 do
		local at = int(math.floor(i * letters / SAMPLE))
		bytes = bytes + #call('zrange', KEYS[3], at, at)[1]
	end
	return math.max(1, math.min(most, math.floor(most * MEAN * SAMPLE / bytes)))
end

if call('get', KEYS[1]) ~= ARGV[1] then return {2} end
local over = 0
if ARGV[5] then
	call('zadd', KEYS[3], ARGV[5], ARGV[6])
	local letters = call('zcard', KEYS[3])
	over = math.max(letters - kept(letters, tonumber(ARGV[4])), 0)
	if over > 0 then wide('zrem', KEYS[3], call('zrange', KEYS[3], '0', int(over - 1))) end
end
call('hset', KEYS[2], ARGV[2], ARGV[3])
return {0, over}
