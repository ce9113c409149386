-- bounded.lua: put before the scripts that read definitions by name.

-- bounded_fields reads fields of a hash in their order: all of them, or the first ones, until it has read ROOM bytes.
-- It exceeds ROOM by fewer than STEP values, and reads at least one. The first steps are smaller, in case the values are
-- large.
local ROOM, STEP, GROWTH = 2097152, 8, 4
local function bounded_fields(key, names, from, last)
	local out, bytes, n, step = {}, 0, 0, 1
	while from <= last and bytes < ROOM do
		local till = math.min(from + step - 1, last)
		for _, value in ipairs(call('hmget', key, unpack(names, from, till))) do
			n = n + 1
			out[n] = value
			if value then bytes = bytes + #value end
		end
		from, step = till + 1, math.min(GROWTH * step, STEP)
	end
	return out
end
