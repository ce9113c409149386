-- events.lua: put between prelude and script where events are recorded.
-- KEYS  the last one is the shard's stream of events
-- ARGV  after the script's own, per event: the number of the record that it is about
--       (0: an announcement, about none) and its text; then how many the stream
--       keeps, about, and last of all the number of events
-- An event is in the stream if and only if this call wrote its record: a repeated call
-- that finds its own writes adds no event either.
local EVENTS = tonumber(ARGV[#ARGV])
ARGS = #ARGV - 2 - 2 * EVENTS

-- A stream is bounded by bytes, too: MEAN for each event that it keeps. Its length in bytes is looked at whenever
-- STEP further bytes have been added.
local MEAN, STEP = 1024, 16384

-- bytes_until is the sum of the texts up to an entry, as its field b has it. Nodes of an older version write no such
-- field, and the sum begins anew after their entries.
local function bytes_until(entry)
	local b = entry and entry[2][4] or ''
	local _, digits = find(b, '^%d+')
	return digits and tonumber(sub(b, 1, math.min(digits, 15))) or 0
end

-- place_of returns the two parts of an id: the instant and the number.
local function place_of(id)
	local _, digits = find(id, '^%d+')
	return tonumber(sub(id, 1, digits)), tonumber(sub(id, digits + 2))
end

-- kept returns how many entries a stream may have: keep, or fewer if they have too many bytes. seq and bytes are the
-- number and the sum of its last entry. A user that may not read events may still record them: the stream is then bounded by number only.
local function kept(stream, keep, seq, bytes)
	local first = redis.pcall('xrange', stream, '-', '+', 'count', '1')[1]
	if not first then return keep end
	local before, most = bytes_until(first), keep * MEAN
	if before > bytes then before = 0 end -- the sum began anew after it
	if bytes - before <= most then return keep end
	local _, first_seq = place_of(first[1])
	return math.max(1, math.min(keep, math.floor((seq - first_seq) * most / (bytes - before))))
end

-- record writes the events of the records whose digit is 0. Their ids are the shard's
-- clock and a number that grows by one, so that readers notice gaps.
function record(codes)
	local stream, keep, ms, seq, bytes = KEYS[#KEYS], tonumber(ARGV[#ARGV - 1])
	for a = ARGS + 1, #ARGV - 2, 2 do
		local n = tonumber(ARGV[a])
		if n == 0 or codes[n] == '0' then
			if not seq then
				local last = call('xrevrange', stream, '+', '-', 'count', '1')[1]
				ms, seq = place_of(last and last[1] or '0-0')
				ms, bytes = math.max(clock_ms, ms), bytes_until(last)
			end
			local text, most = ARGV[a + 1], keep
			local sum = bytes + #text
			if math.floor(sum / STEP) > math.floor(bytes / STEP) then most = kept(stream, keep, seq, bytes) end
			seq, bytes = seq + 1, sum
			call('xadd', stream, 'maxlen', '~', int(most), int(ms) .. '-' .. int(seq), 'e', text, 'b', int(bytes))
		end
	end
end
