-- limit_rate.lua: rate limits of names at home in this shard, by GCRA.
-- KEYS  1 meta; then 1 per item: text
--       time until which starts are taken: us (16) and ns (3) | interval, ns (16)
--       | the last calls, newest first, each: id (12) number (8) at, ms (16)
-- ARGV  1-3 common; then 5 per item: id of the call (12), number, interval in ns, burst, "1" reserve
-- Reply {code, clock, {per item: {number, ms at which the first reserved start or the next one may happen}}}
-- Guards: a text of another form is none. Reservations reach 100 days ahead at most.
--       Instants are kept as the distance from the clock while they are reckoned with:
--       nanoseconds since 1970 do not fit into a number. The distance is counted in
--       starts when the interval changes: a queue that is sped up is not held to what
--       it took while it was slow.
--       While the clock may run ahead of passing time, starts lie further apart, so that
--       no more of them come in a stretch of time than the rate allows.
-- May be repeated: one of the last 8 calls is answered as it was. One that is forgotten
--       takes, or gives back, twice.

local HEAD, CALL, CALLS = 35, 36, 8
local FAR = 8640000000000000 -- ns; 100 days
local IDLE = 60000           -- ms that an idle limit remembers its last calls

-- taken returns how far ahead of the clock starts are taken, ns, and the last calls.
local function taken(text, interval)
	if not text or #text < HEAD then return 0, '' end
	local ahead = (tonumber(sub(text, 1, 16)) - clock_us) * 1000 + tonumber(sub(text, 17, 19))
	local old = tonumber(sub(text, 20, HEAD))
	if ahead <= 0 then ahead = 0 elseif old ~= interval then ahead = math.floor(ahead * interval / old) end
	return ahead, sub(text, HEAD + 1)
end

local function answered(calls, id)
	for i = 1, #calls, CALL do
		if sub(calls, i, i + 11) == id then
			return {tonumber(sub(calls, i + 12, i + 19)), tonumber(sub(calls, i + 20, i + 35))}
		end
	end
end

-- instant rounds up, so that a caller at that instant is admitted.
local function instant(ahead)
	if ahead <= 0 then return clock_ms end
	return math.ceil((clock_us + math.ceil(ahead / 1000)) / 1000)
end

local function store(key, ahead, interval, calls)
	local text = fmt('%016.0f%03.0f%016.0f', clock_us + math.floor(ahead / 1000), ahead % 1000, interval)
		.. sub(calls, 1, CALL * CALLS)
	if ARGV[3] ~= '' then
		call('set', key, text)
	else
		-- Twice as long, because the shard's clock may go at half speed.
		call('set', key, text, 'px', int(math.ceil(ahead / 500000) + IDLE))
	end
end

local function take(key, id, n, interval, burst, reserve)
	interval = interval + math.min(clock_ahead * 1000000, interval)
	local ahead, calls = taken(call('get', key), interval)
	local before = answered(calls, id)
	if before then return before end
	local slack = (burst - 1) * interval
	local first = ahead - slack
	if n < 0 then
		ahead = math.max(0, ahead + n * interval)
	elseif reserve then
		ahead = math.max(ahead, math.min(ahead + n * interval, FAR))
	else
		n = first <= 0 and math.min(n, math.floor(-first / interval) + 1) or 0
		ahead = ahead + n * interval
	end
	local at = instant(reserve and n > 0 and first or ahead - slack)
	if n ~= 0 then store(key, ahead, interval, id .. fmt('%+08.0f%016.0f', n, at) .. calls) end
	return {n, at}
end

local answers = {}
for a = 4, #ARGV, 5 do
	answers[#answers + 1] = take(KEYS[2 + #answers], ARGV[a], tonumber(ARGV[a + 1]),
		tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]), ARGV[a + 4] == '1')
end
return {0, clock_seen, answers}
