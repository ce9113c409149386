-- create.lua: store new records.
-- KEYS  1 meta  2 states  3 definitions  4 lanes  5 lock  6.. lanes of the records
-- ARGV  1-3 common  4.. per record: id, place of its lane in KEYS, state, score,
--       definition, state text that may be overwritten ("" none)
-- Reply {code, clock, one digit per record, {place, due ... of lanes that became earlier}, lock value}
--       0 created  1 exists  2 exists, deleted but still running  3 created by an earlier copy of this call
-- Guards: the id is free, or holds exactly the text that may be overwritten.
-- May be repeated: a record with the same state and definition is what this call stored.

local ids = {}
for a = 4, ARGS, 6 do ids[#ids + 1] = ARGV[a] end
local texts = call('hmget', KEYS[2], unpack(ids))
local codes, states, defs, scores, places, taken = {}, {}, {}, {}, {}, {}
local least = {} -- the lowest new score of each place
for i, id in ipairs(ids) do
	local a = 4 + 6 * (i - 1)
	local text = taken[id] or texts[i]
	if text and text ~= ARGV[a + 5] then
		if text == ARGV[a + 2] and not taken[id] and call('hget', KEYS[3], id) == ARGV[a + 4] then
			codes[i] = '3'
		elseif sane(text) and sub(text, 35, 35) == '1' then
			codes[i] = '2'
		else
			codes[i] = '1'
		end
	else
		codes[i], taken[id] = '0', ARGV[a + 2]
		states[#states + 1], states[#states + 2] = id, ARGV[a + 2]
		defs[#defs + 1], defs[#defs + 2] = id, ARGV[a + 4]
		local k = tonumber(ARGV[a + 1])
		if not scores[k] then
			scores[k], least[k] = {}, NEVER
			places[#places + 1] = k
		end
		scores[k][#scores[k] + 1] = ARGV[a + 3]
		scores[k][#scores[k] + 1] = id
		least[k] = math.min(least[k], tonumber(ARGV[a + 3]))
	end
end
if record then record(codes) end
wide('hset', KEYS[3], defs)
wide('hset', KEYS[2], states)
for _, k in ipairs(places) do wide('zadd', KEYS[k], scores[k]) end
-- Only a lane that may have become due earlier is looked at.
local list, holder = {}, ''
if #places > 0 then
	local skip, names, earlier = #KEYS[4] - 2, {}, {}
	for i, k in ipairs(places) do names[i] = sub(KEYS[k], skip) end
	for i, due in ipairs(call('zmscore', KEYS[4], unpack(names))) do
		if not due or least[places[i]] < tonumber(due) then earlier[#earlier + 1] = places[i] end
	end
	list, holder = news(KEYS[4], KEYS[5], earlier)
end
return {0, clock_us, table.concat(codes), list, holder}
