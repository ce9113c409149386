-- export.lua: store the position of an export of audit records and the identity that it belongs to.
-- Not part of any shard, so it has none of the common arguments.
-- KEYS  1 the hash with the exports
-- ARGV  1 field of the position  2 field of the identity
--       3, 4 both as the caller has seen them; "" there is none  5, 6 both afterwards
-- Reply {1}, or {0}: one of them is another, nothing was written
-- Guards: both values. Repeated, it finds others.
local position = call('hget', KEYS[1], ARGV[1]) or ''
local identity = call('hget', KEYS[1], ARGV[2]) or ''
-- An identity without a position is what a node of an earlier build has left of a deleted export.
if position ~= ARGV[3] or (position ~= '' and identity ~= ARGV[4]) then
	return {0}
end
call('hset', KEYS[1], ARGV[1], ARGV[5], ARGV[2], ARGV[6])
return {1}
