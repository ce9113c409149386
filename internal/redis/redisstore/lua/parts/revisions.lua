-- revisions.lua: put before the scripts that replace definitions.

-- prepend_revision returns the stored revisions of a job with another one before them: the first ones, at
-- most so many, and only as long as they fit into the room. Each is a field of a protobuf message: a byte, its
-- length as a varint, and a definition.
local function prepend_revision(entry, stored, most, room)
	local text = entry .. (stored or '')
	local last, count = 0, 0
	while count < most do
		local at, length, unit, digit = last + 2, 0, 1, nil
		repeat
			digit = byte(text, at)
			if not digit then return sub(text, 1, last) end
			length, unit, at = length + digit % 128 * unit, unit * 128, at + 1
		until digit < 128
		local to = at - 1 + length
		if to > room or to > #text then break end
		last, count = to, count + 1
	end
	return sub(text, 1, last)
end
