-- lease.lua: hand out due records, oldest first in each lane.
-- KEYS  1 meta  2 states  3 lanes  4 lock  5 definitions  6.. lanes asked
-- ARGV  1-3 common  4 lock value  5 TTL, ms  6 greatest token that the caller has seen
--       7 meta field of the caller's last batch  8 batch id
--       9 until when the caller waits, by the shard's clock in ms; 0 unknown
--       10 advance: how many ms before it is due a record may be leased  11.. quota of each lane
-- Reply {code, clock, replayed, deadline, {record, state ...}, {definition of the first ones},
--       {corrupt records}, first due of each lane ...}. A run that is a record of its own has
--       the definition of its job; false is none. Definitions are bounded by bytes. Of more
--       than FEW records none is sent: the lease does not wait for them.
--       code 4: too late, nobody waits for the answer any more
-- Guards: the lock has the caller's value. A record whose state's header is not as long as
--       it should be is moved out of the way, to the dead region for ever, and reported;
--       what else may be wrong with a state its reader finds.
-- May be repeated: a batch is kept as (first token, count, deadline, id). A repeat
--       answers the records that still have its tokens, even if the lock has gone. A batch
--       without records is kept too: a copy that arrives after its repeat gets nothing.
local HEAD, FEW = 6, 64
-- Of a lane with a quota of at most SMALL one call reads the records and what is first after them. A larger quota would
-- read the scores of many records that are not due.
local SMALL = 8
local latest = tonumber(ARGV[9])
if latest > 0 and clock_ms > latest then return {4, clock_seen} end

-- defined returns the definitions of records that were leased, of few.
local function defined(leased)
	if #leased == 0 or #leased > 2 * FEW then return '' end
	local names = {}
	for i = 1, #leased, 2 do
		local id = leased[i]
		local at = find(id, '#', 1, true)
		names[#names + 1] = at and sub(id, 1, at - 1) or id
	end
	return bounded_fields(KEYS[5], names, 1, #names)
end

-- heads has the first score of lanes that are known: false where a lane is empty.
local heads = {}

-- answer brings the index of lanes in line with the lanes and ends the reply with them. A
-- lane's name is what follows "...l:" in its key, whose prefix is two bytes shorter than
-- "...lanes".
local function answer(reply)
	local skip = #KEYS[3] - 2
	for k = HEAD, #KEYS do
		local first, name = heads[k], sub(KEYS[k], skip)
		if first == nil then first = call('zrange', KEYS[k], '0', '0', 'withscores')[2] end
		local due = first and math.max(math.min(tonumber(first), NEVER), 0) or NEVER
		if first then call('zadd', KEYS[3], int(due), name) else call('zrem', KEYS[3], name) end
		reply[#reply + 1] = due
	end
	return reply
end

local last = last_batch
if last and sub(last, 37) == ARGV[8] then
	-- All records of the batch have its deadline as score.
	local first, count, deadline = tonumber(sub(last, 1, 16)), tonumber(sub(last, 17, 20)), tonumber(sub(last, 21, 36))
	local score, leased = int(REGION + deadline), {}
	for k = HEAD, #KEYS do
		local ids = call('zrange', KEYS[k], score, score, 'byscore', 'limit', '0', '1000')
		local texts = #ids > 0 and call('hmget', KEYS[2], unpack(ids)) or {}
		for i, text in ipairs(texts) do
			local token = sane(text) and tonumber(sub(text, 1, 16)) or 0
			if token >= first and token < first + count and sub(text, 17, 17) == '1' then
				leased[#leased + 1] = ids[i]
				leased[#leased + 1] = text
			end
		end
	end
	call('hset', KEYS[1], 'c', clock_before .. clock_token .. clock_kind)
	return answer({0, clock_seen, 1, deadline, leased, defined(leased), ''})
end
if call('get', KEYS[4]) ~= ARGV[4] then return {2, clock_seen} end

local ttl = tonumber(ARGV[5])
local deadline = clock_ms + ttl + math.min(clock_ahead, ttl + LEAP) -- ttl from now at the earliest
-- Behind TIME, and ahead of it, the clock has another speed: who waits until a record is due
-- would wait too short a time.
local advance = sub(clock_before, 17) == NO_ANCHOR and tonumber(ARGV[10]) or 0
local score, latest_due = int(REGION + deadline), int(clock_ms + advance)
local first = math.max(tonumber(clock_token) + 1, tonumber(ARGV[6]) + 1, clock_ms * 1000)
local count, leased, corrupt = 0, {}, '' -- record, state ...
-- Of tokens that follow each other the last digit is looked up: to format a number takes
-- longer than all else that is done to a state.
local digit, tens = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}, nil
local place = first % 10

-- first_due is zrange by score for a small quota, and notes the head of the lane after the records have moved: what is
-- first after them, or a region beyond that of due records.
local function first_due(k, quota)
	local found, ids = call('zrange', KEYS[k], '0', int(quota), 'withscores'), {}
	local latest = clock_ms + advance
	heads[k] = #found > 0 and score
	for i = 1, #found, 2 do
		if #ids == quota or tonumber(found[i + 1]) > latest then
			heads[k] = found[i + 1]
			break
		end
		ids[#ids + 1] = found[i]
	end
	return ids
end

for k = HEAD, #KEYS do
	-- No score is below 0. One that somebody wrote would keep its lane due for ever.
	local quota = tonumber(ARGV[k + 5])
	local ids = quota <= SMALL and first_due(k, quota)
		or call('zrange', KEYS[k], '-inf', latest_due, 'byscore', 'limit', '0', ARGV[k + 5])
	if #ids > 0 then
		local moves, texts = {}, call('hmget', KEYS[2], unpack(ids))
		for j = 1, #ids do
			local id, text, to = ids[j], texts[j], score
			local region, ending, tail
			if text then region, ending, tail = byte(text, 17), byte(text, 36, 37) end
			if region == 48 and tail and ending < 58 and tail > 57 then -- in the region of due records
				if place == 10 or not tens then
					place = (first + count) % 10
					tens = fmt('%015d', (first + count - place) / 10)
				end
				-- token, region leased, not acked, same revision, no session yet
				leased[2 * count + 1], leased[2 * count + 2] = id, tens .. digit[place] .. '10' .. sub(text, 19, 28) .. '000000' .. sub(text, 35)
				count, place = count + 1, place + 1
			else
				if corrupt == '' then corrupt = {} end
				corrupt[#corrupt + 1] = id
				to = int(3 * REGION + NEVER)
			end
			moves[2 * j - 1], moves[2 * j] = to, id
		end
		call('zadd', KEYS[k], 'xx', unpack(moves))
	end
end
local token = clock_token
if count > 0 then
	wide('hset', KEYS[2], leased)
	token = fmt('%016d', first + count - 1)
end
-- Callers that have gone leave their field behind: the first call of a new
-- one clears those whose leases have ended.
if not last and call('hlen', KEYS[1]) > 64 then
	local all, old = call('hgetall', KEYS[1]), {}
	for i = 1, #all, 2 do
		if sub(all[i], 1, 2) == 'b:' and tonumber(sub(all[i + 1], 21, 36)) < clock_ms then
			old[#old + 1] = all[i]
		end
	end
	wide('hdel', KEYS[1], old)
end
call('hset', KEYS[1], 'c', clock_before .. token .. clock_kind, ARGV[7], fmt('%016d%04d%016d', first, count, deadline) .. ARGV[8])
return answer({0, clock_seen, 0, deadline, leased, defined(leased), corrupt})
