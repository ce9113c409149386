-- create.lua: store new records.
-- KEYS  1 meta  2 states  3 definitions  4 lanes  5 lock  6.. lanes of the records; among them the index
--       of objectives, if a record has one
-- ARGV  1-3 common  4.. groups of records of one lane: place of the lane in KEYS, number of
--       records, the lowest of their scores, arguments of each, and of each record its id,
--       state, score, definition and, as a fifth, the state text that may be overwritten.
--       Seven arguments have "" there if there is none, and then place of the index and instant
--       at which to look at the record's objective
-- Reply {code, clock, one digit per record, {place, due ... of lanes that became earlier}, lock value}
--       0 created  1 exists  2 exists, deleted but still running  3 created by an earlier copy of this call
-- Guards: the id is free, or holds exactly the text that may be overwritten.
-- May be repeated: a record with the same state and definition is what this call stored.
local ids, n, a = {}, 0, 4
while a <= ARGS do
	local count, width = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 3])
	a = a + 4
	for i = n + 1, n + count do
		ids[i] = ARGV[a]
		a = a + width
	end
	n = n + count
end
local texts = call('hmget', KEYS[2], unpack(ids))
local codes, states, defs, s = {}, {}, {}, 0
local places, scores, least = {}, {}, {} -- least: the lowest new score of each place
local objectives, watched = 0, nil       -- place, ZADD
local taken = {}                         -- state text of what this call creates, by id
n, a = 0, 4
while a <= ARGS do
	local k, count, width = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 3])
	local to, lowest = scores[k] or {}, tonumber(ARGV[a + 2])
	local before, m = #to, #to
	a = a + 4
	for i = n + 1, n + count do
		local id, state = ids[i], ARGV[a + 1]
		local text = taken[id] or texts[i]
		if text and (width == 4 or text ~= ARGV[a + 4]) then
			if text == state and not taken[id] and call('hget', KEYS[3], id) == ARGV[a + 3] then
				codes[i] = '3'
			elseif sane(text) and sub(text, 35, 35) == '1' then
				codes[i] = '2'
			else
				codes[i] = '1'
			end
		else
			codes[i], taken[id] = '0', state
			states[s + 1], states[s + 2], defs[s + 1], defs[s + 2] = id, state, id, ARGV[a + 3]
			to[m + 1], to[m + 2] = ARGV[a + 2], id
			s, m = s + 2, m + 2
			if width > 5 then
				objectives = tonumber(ARGV[a + 5])
				watched = watched or {}
				watched[#watched + 1], watched[#watched + 2] = ARGV[a + 6], id
			end
		end
		a = a + width
	end
	n = n + count
	if m > before then
		if not scores[k] then places[#places + 1] = k end
		scores[k], least[k] = to, math.min(least[k] or NEVER, lowest)
	end
end
if record then record(codes) end
wide('hset', KEYS[3], defs)
wide('hset', KEYS[2], states)
for _, k in ipairs(places) do wide('zadd', KEYS[k], scores[k]) end
if watched then wide('zadd', KEYS[objectives], watched) end
-- Only a lane that may have become due earlier is looked at.
local list, holder = '', ''
if #places > 0 then
	local skip, names, earlier = #KEYS[4] - 2, {}, {}
	for i, k in ipairs(places) do names[i] = sub(KEYS[k], skip) end
	for i, due in ipairs(call('zmscore', KEYS[4], unpack(names))) do
		if not due or least[places[i]] < tonumber(due) then earlier[#earlier + 1] = places[i] end
	end
	list, holder = update_lanes(KEYS[4], KEYS[5], earlier)
end
return {0, clock_seen, table.concat(codes), list, holder}
