-- census.lua: count the jobs in a part of a lane, without the dead letters and runs that
-- are records of their own. It needs no clock, so it has none of the common arguments.
-- KEYS  1 lane  2 definitions, which it does not read
-- ARGV  1 first place  2 how many places
-- Reply {records, jobs}
-- May be repeated: it stores nothing.
local PART = tonumber(ARGV[2])
local first = tonumber(ARGV[1])
local records = call('zrange', KEYS[1], int(first), int(first + PART - 1))
local jobs = 0
for _, id in ipairs(records) do
	if not find(id, '#') then jobs = jobs + 1 end
end
return {#records, jobs}
