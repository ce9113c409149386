-- objectives.lua: move entries of the index of objectives, or take them off.
-- KEYS  1 states  2 index of objectives
-- ARGV  per entry: record, guard (a pattern: see apply.lua), instant as it was read, new instant; ""
--       takes it off. The guard is "" if there was no record, and "*" if it could not be read
-- Reply nothing
-- Guards: token and revision are as the new instant was decided on; or there is no record; or
--       the entry of what could not be read is as it was.
-- May be repeated.
local ids, moved, gone = {}, {}, {}
for a = 1, #ARGV, 4 do ids[#ids + 1] = ARGV[a] end
if #ids == 0 then return '' end
local texts = call('hmget', KEYS[1], unpack(ids))
for i, id in ipairs(ids) do
	local a, asked = 4 * i - 3, not texts[i]
	if ARGV[a + 1] == '*' then
		local score = call('zscore', KEYS[2], id)
		asked = score and tonumber(score) == tonumber(ARGV[a + 2])
	elseif ARGV[a + 1] ~= '' then
		asked = texts[i] and find(texts[i], ARGV[a + 1])
	end
	if asked and ARGV[a + 3] ~= '' then
		moved[#moved + 1], moved[#moved + 2] = ARGV[a + 3], id
	elseif asked then
		gone[#gone + 1] = id
	end
end
wide('zadd', KEYS[2], moved)
wide('zrem', KEYS[2], gone)
return ''
