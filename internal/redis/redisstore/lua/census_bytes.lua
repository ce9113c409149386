-- census_bytes.lua: add up the bytes of the records in a part of a lane: ids and definitions of jobs
-- and dead letters, states of dead letters and of runs that are records of their own, and
-- the history of all of them. It needs no clock, so it has none of the common arguments.
-- KEYS  1 lane  2 definitions  3 states  4 history
-- ARGV  1 first place  2 how many places
-- Reply {records, bytes}
-- May be repeated: it stores nothing.
local PART = tonumber(ARGV[2])
local first = tonumber(ARGV[1])
-- Runs fill the slots of a history from 0 on. After its limit was raised there may be a gap: of
-- what is beyond it, one slot in so many is looked at, and all of them if there is a run.
local SLOTS, SAMPLE = 100, 10
local records = call('zrange', KEYS[1], int(first), int(first + PART - 1))
local bytes = 0

local function run(id, slot)
	local field = id .. '.' .. slot
	local n = call('hstrlen', KEYS[4], field)
	return n > 0 and n + #field or 0
end

local function history(id, slots)
	local sum, slot = 0, 0
	while slot < slots do
		local n = run(id, slot)
		if n == 0 then break end
		sum, slot = sum + n, slot + 1
	end
	local beyond = false
	for sample = slot - slot % SAMPLE + SAMPLE - 1, slots - 1, SAMPLE do
		beyond = beyond or run(id, sample) > 0
	end
	for i = slot + 1, beyond and slots - 1 or 0 do sum = sum + run(id, i) end
	return sum
end

for _, id in ipairs(records) do
	local child = find(id, '#')
	bytes = bytes + #id + call('hstrlen', KEYS[2], id) + history(id, child and 1 or SLOTS)
	if child then bytes = bytes + call('hstrlen', KEYS[3], id) end
end
return {#records, bytes}
