-- ends.lua: when the time of the first record in regions of lanes comes. Changes nothing,
-- the clock neither.
-- KEYS  lanes
-- ARGV  1-2 first and last score of the stretch that has all regions  3.. those of each
-- Reply {place of the lane, score ...}, of those regions only that have any record: mostly
--       of none, which one look at the stretch tells
-- May be repeated.
local function first(key, i)
	return call('zrange', key, ARGV[i], ARGV[i + 1], 'byscore', 'limit', '0', '1', 'withscores')[2]
end
local found = {}
for k = 1, #KEYS do
	if first(KEYS[k], 1) then
		for i = 3, #ARGV, 2 do
			local score = first(KEYS[k], i)
			if score then
				found[#found + 1] = k
				found[#found + 1] = score
			end
		end
	end
end
return found
