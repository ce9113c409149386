-- trail.lua: append audit records that continue the chain. Not part of any shard, so it has
-- none of the common arguments.
-- KEYS  1 the stream  2 the hash with the end of the chain
-- ARGV  1 end of the chain as the caller has seen it; "" there is none  2 its end afterwards
--       3 "maxlen" or "minid": what to trim by, or ""  4 the bound
--       5... records: id, number of texts that follow, names and values in turn
-- Reply {1}, or {0}: the chain ends elsewhere, nothing was written
-- Guards: the end of the chain. The first id must be above that of the newest record, or nothing is
-- written. Repeated, it finds another end.
if (call('hget', KEYS[2], 'head') or '') ~= ARGV[1] then
	return {0}
end
local i = 5
while i <= #ARGV do
	local n = tonumber(ARGV[i + 1])
	if i == 5 and ARGV[3] == 'maxlen' then
		call('xadd', KEYS[1], 'maxlen', '~', ARGV[4], ARGV[i], unpack(ARGV, i + 2, i + 1 + n))
	elseif i == 5 and ARGV[3] == 'minid' then
		call('xadd', KEYS[1], 'minid', '=', ARGV[4], ARGV[i], unpack(ARGV, i + 2, i + 1 + n))
	else
		call('xadd', KEYS[1], ARGV[i], unpack(ARGV, i + 2, i + 1 + n))
	end
	i = i + 2 + n
end
call('hset', KEYS[2], 'head', ARGV[2])
return {1}
