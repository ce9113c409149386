-- limit_cells.lua: read cells of names at home in this shard, or compare and set them.
-- KEYS  1 meta; then 1 per item: expiry, ms (16), and text
-- ARGV  1-3 common; then 3 per item: "r" read or "s" swap, old text, new text; "" is no cell
-- Reply {code, clock, {per item: {1 swapped, text now}}}
-- Guards: the text is the old one. A cell that has expired by the shard's clock is none;
--       Redis's own expiry only clears it away.
-- May be repeated: a cell that has the new text was swapped.

local LIFE = 604800000 -- ms; a week

local function read(key)
	local text = call('get', key)
	if not text or (tonumber(sub(text, 1, 16)) or 0) <= clock_ms then return '' end
	return sub(text, 17)
end

local function write(key, text)
	if text == '' then
		call('del', key)
	elseif ARGV[3] ~= '' then
		call('set', key, fmt('%016.0f', clock_ms + LIFE) .. text)
	else
		call('set', key, fmt('%016.0f', clock_ms + LIFE) .. text, 'px', int(2 * LIFE))
	end
end

local answers = {}
for a = 4, #ARGV, 3 do
	local key = KEYS[2 + #answers]
	local text, swapped = read(key), 0
	if ARGV[a] == 's' then
		if text == ARGV[a + 1] then
			text, swapped = ARGV[a + 2], 1
			write(key, text)
		elseif text == ARGV[a + 2] then
			swapped = 1
		end
	end
	answers[#answers + 1] = {swapped, text}
end
return {0, clock_seen, answers}
