-- read.lua: read records at one instant. Changes nothing, the clock neither.
-- KEYS  1 states  2 definitions
-- ARGV  records, then for each the record whose definition counts for it
-- Reply {states, definitions}; false for what does not exist
-- May be repeated.
local n = #ARGV / 2
local function fields(key, from)
	local values = {}
	for i = from, from + n - 1, 1000 do
		local last = math.min(i + 999, from + n - 1)
		for _, v in ipairs(call('hmget', key, unpack(ARGV, i, last))) do values[#values + 1] = v end
	end
	return values
end
return {fields(KEYS[1], 1), fields(KEYS[2], n + 1)}
