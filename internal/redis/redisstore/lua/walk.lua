-- walk.lua: read some definitions of a shard, bounded by count and by bytes. Changes nothing.
-- KEYS  1 definitions
-- ARGV  1 cursor  2 fields to look at  3 bytes to read  4 pattern of the fields, or ""
-- Reply {cursor, {field, definition, ...}}
-- May be repeated.
-- Fields come in no order of their size, so that the first ones show how many fit the bytes. A read
-- exceeds the bytes by the definitions of one small scan, because a cursor points at no single field.
local cursor, left, room, pattern = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local out, bytes, looked, count = {}, 0, 0, 2
repeat
	local found
	if pattern == '' then
		found = call('hscan', KEYS[1], cursor, 'count', count)
	else
		found = call('hscan', KEYS[1], cursor, 'match', pattern, 'count', count)
	end
	cursor = found[1]
	for _, text in ipairs(found[2]) do
		out[#out + 1] = text
		bytes = bytes + #text
	end
	looked, left = looked + count, left - count
	local mean = math.max(1, bytes / looked)
	count = math.floor(math.min(2 * count, left, (room - bytes) / mean))
until cursor == '0' or left <= 0 or count < 1
return {cursor, out}
