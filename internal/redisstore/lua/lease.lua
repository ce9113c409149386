-- lease.lua: hand out due records, oldest first in each lane.
-- KEYS  1 meta  2 states  3 lanes  4 lock  5.. lanes asked
-- ARGV  1-3 common  4 lock value  5 TTL, ms  6 greatest token that the caller has seen
--       7 meta field of the caller's last batch  8 batch id
--       9 until when the caller waits, by the shard's clock in ms; 0 unknown  10.. quota of each lane
-- Reply {code, clock, replayed, deadline, {record, state ...}, {first due of each lane}, {corrupt records}}
--       code 4: too late, nobody waits for the answer any more
-- Guards: the lock has the caller's value. A record without a sane state is moved
--       out of the way, to the dead region for ever, and reported.
-- May be repeated: a batch is kept as (first token, count, deadline, id). A repeat
--       answers the records that still have its tokens, even if the lock has gone. A batch
--       without records is kept too: a copy that arrives after its repeat gets nothing.
local HEAD = 5
local byte = string.byte
local meta = call('hmget', KEYS[1], 'c', ARGV[7])
local code = advance(meta[1])
if code ~= 0 then return {code, clock.us} end
local latest = tonumber(ARGV[9])
if latest > 0 and clock.ms > latest then return {4, clock.us} end

local places = {}
for k = HEAD, #KEYS do places[#places + 1] = k end

-- replay finds the records of a batch: all have its deadline as score.
local function replay(first, count, deadline)
	local score = int(REGION + deadline)
	local leased = {}
	for _, k in ipairs(places) do
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
	call('hset', KEYS[1], 'c', keep())
	return {0, clock.us, 1, deadline, leased, (heads(KEYS[3], places)), {}}
end

local last = meta[2]
if last and sub(last, 37) == ARGV[8] then
	return replay(tonumber(sub(last, 1, 16)), tonumber(sub(last, 17, 20)), tonumber(sub(last, 21, 36)))
end
if call('get', KEYS[4]) ~= ARGV[4] then return {2, clock.us} end

local deadline = clock.ms + tonumber(ARGV[5])
local score = int(REGION + deadline)
local first = math.max(clock.token + 1, tonumber(ARGV[6]) + 1, clock.ms * 1000)
local count, now = 0, int(clock.ms)
local leased, corrupt = {}, {} -- record, state ...
for i, k in ipairs(places) do
	-- No score is below 0. One that somebody wrote would keep its lane due for ever.
	local ids = call('zrange', KEYS[k], '-inf', now, 'byscore', 'limit', '0', ARGV[HEAD + 4 + i])
	if #ids > 0 then
		local moves = {}
		for j, text in ipairs(call('hmget', KEYS[2], unpack(ids))) do
			local id, to = ids[j], score
			if sane(text) and byte(text, 17) == 48 then -- in the region of due records
				-- token, region leased, not acked, same revision, no session yet
				local state = fmt(TOKEN, first + count) .. '10' .. sub(text, 19, 28) .. '000000' .. sub(text, 35)
				count = count + 1
				leased[2 * count - 1], leased[2 * count] = id, state
			else
				corrupt[#corrupt + 1] = id
				to = int(3 * REGION + NEVER)
			end
			moves[2 * j - 1], moves[2 * j] = to, id
		end
		call('zadd', KEYS[k], 'xx', unpack(moves))
	end
end
if count > 0 then
	wide('hset', KEYS[2], leased)
	clock.token = first + count - 1
end
local batch = fmt('%016.0f%04.0f%016.0f', first, count, deadline) .. ARGV[8]
-- Callers that have gone leave their field behind: the first call of a new
-- one clears those whose leases have ended.
if not last and call('hlen', KEYS[1]) > 64 then
	local all, old = call('hgetall', KEYS[1]), {}
	for i = 1, #all, 2 do
		if sub(all[i], 1, 2) == 'b:' and tonumber(sub(all[i + 1], 21, 36)) < clock.ms then
			old[#old + 1] = all[i]
		end
	end
	wide('hdel', KEYS[1], old)
end
call('hset', KEYS[1], 'c', keep(), ARGV[7], batch)
return {0, clock.us, 0, deadline, leased, (heads(KEYS[3], places)), corrupt}
