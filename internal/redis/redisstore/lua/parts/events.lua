-- events.lua: put between prelude and script where events are recorded.
-- KEYS  the last one is the shard's stream of events
-- ARGV  after the script's own, per event: the number of the record that it is about
--       (0: an announcement, about none) and its text; then how many the stream
--       keeps, about, and last of all the number of events
-- An event is in the stream if and only if this call wrote its record: a repeated call
-- that finds its own writes adds no event either.
local EVENTS = tonumber(ARGV[#ARGV])
ARGS = #ARGV - 2 - 2 * EVENTS

-- record writes the events of the records whose digit is 0. Their ids are the shard's
-- clock and a number that grows by one, so that readers notice gaps.
function record(codes)
	local stream, keep, ms, seq = KEYS[#KEYS], ARGV[#ARGV - 1]
	for a = ARGS + 1, #ARGV - 2, 2 do
		local n = tonumber(ARGV[a])
		if n == 0 or codes[n] == '0' then
			if not seq then
				local last = call('xrevrange', stream, '+', '-', 'count', '1')
				local id = last[1] and last[1][1] or '0-0'
				local _, digits = find(id, '^%d+')
				ms, seq = math.max(clock_ms, tonumber(sub(id, 1, digits))), tonumber(sub(id, digits + 2))
			end
			seq = seq + 1
			call('xadd', stream, 'maxlen', '~', keep, int(ms) .. '-' .. int(seq), 'e', ARGV[a + 1])
		end
	end
end
