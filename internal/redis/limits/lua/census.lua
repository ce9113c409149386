-- census.lua: count the jobs in parts of lanes, without the dead letters and runs that
-- are records of their own. It needs no clock, so it has none of the common arguments.
-- KEYS  1.. lanes
-- ARGV  1 how many records to look at, at most, in all lanes  2.. first place of each lane
-- Reply {records, jobs, 1 there may be more | 0 ...} of the first lanes, at least one; those that
--       it leaves out were not looked at
-- May be repeated: it stores nothing.
local left, reply = tonumber(ARGV[1]), {}
for k = 1, #KEYS do
	if left <= 0 then break end
	local first, PART = tonumber(ARGV[k + 1]), left
	local records = call('zrange', KEYS[k], int(first), int(first + PART - 1))
	local jobs = 0
	for _, id in ipairs(records) do
		if not find(id, '#') then jobs = jobs + 1 end
	end
	reply[#reply + 1] = #records
	reply[#reply + 1] = jobs
	reply[#reply + 1] = #records == PART and 1 or 0
	left = left - math.max(#records, 1)
end
return reply
