-- census_bytes.lua: add up the bytes of the records in parts of lanes: ids and definitions of jobs
-- and dead letters, revisions of jobs, states of dead letters and of runs that are records of
-- their own, and the history of all of them. It needs no clock, so it has none of the common arguments.
-- KEYS  1 definitions  2 states  3 history  4 revisions  5.. lanes
-- ARGV  1 how many fields to look at, at most, in all lanes  2.. first place of each lane
-- Reply {records, bytes, 1 there may be more | 0 ...} of the first lanes, at least one; those that
--       it leaves out were not looked at
-- May be repeated: it stores nothing.
local left, reply = tonumber(ARGV[1]), {}
-- Runs fill the slots of a history from 0 on. After its limit was raised there may be a gap: of
-- what is beyond it, one slot in so many is looked at, and all of them if there is a run.
local SLOTS, SAMPLE = 100, 10
local ran = call('hlen', KEYS[3]) > 0
-- A record takes at most WORST looks, and at least LEAST.
local edited = call('hlen', KEYS[4]) > 0
local WORST, LEAST = (ran and 2 + SLOTS + SLOTS / SAMPLE or 2) + (edited and 1 or 0), ran and 2 or 1

local function look(hash, field)
	left = left - 1
	return call('hstrlen', hash, field)
end

local function run(id, slot)
	local field = id .. '.' .. slot
	local n = look(KEYS[3], field)
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

local function weigh(id)
	local child = find(id, '#')
	local bytes = #id + look(KEYS[1], id)
	if ran then bytes = bytes + history(id, child and 1 or SLOTS) end
	if child then
		bytes = bytes + look(KEYS[2], id)
	elseif edited then
		local n = look(KEYS[4], id)
		if n > 0 then bytes = bytes + n + #id end
	end
	return bytes
end

for k = 5, #KEYS do
	if k > 5 and left < WORST then break end
	local first, PART = tonumber(ARGV[k - 3]), math.max(1, math.floor(left / LEAST))
	local records = call('zrange', KEYS[k], int(first), int(first + PART - 1))
	local done, bytes = 0, 0
	while done < #records and (left >= WORST or k == 5 and done == 0) do
		done = done + 1
		bytes = bytes + weigh(records[done])
	end
	reply[#reply + 1] = done
	reply[#reply + 1] = bytes
	reply[#reply + 1] = (done < #records or #records == PART) and 1 or 0
	left = left - 1 -- so that empty lanes are bounded as well
end
return reply
