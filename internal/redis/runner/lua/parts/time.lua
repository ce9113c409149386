-- time.lua: put before every script of a shard. It moves the shard's clock, as
-- Clock.Advance of package lease does, and refuses the call if it cannot. tick.lua writes
-- it, or the script itself.
--
-- The meta field "c" is fixed text:
--   clock, ms (16) | anchor, real (16) | anchor, clock (16) | token (16) | virtual (1)
--
-- The clock is Redis's TIME until that steps back. While TIME is behind, it goes on at half
-- of TIME's rate from an anchor; when TIME is put right, the clock catches up at twice TIME's
-- rate. clock_seen is the clock in replies: us, and its lag if it has one, how far it may
-- still run ahead of passing time, in ms; clock_ahead is that and what roundings may add. What
-- must not come before d ms have passed is due at clock_ms + d + min(clock_ahead, d + LEAP). Far
-- ahead of what the caller expects TIME is refused until a caller accepts it.
--
-- ARGV[1] is the most that the caller expects the clock to show, in ms: 0 without a monotonic clock,
-- negative before its first answer. ARGV[2] is the least, 0 without one; -1 accepts a jump.
local JUMP = 60000 -- ms that the clock may be ahead of what the caller expects
local LEAP = 2000  -- ms that the clock may leap when TIME is stepped
local SLACK = 20   -- ms that roundings may add to the lag
local NO_ANCHOR = '00000000000000000000000000000000'
local clock_ms, clock_us, clock_seen
local clock_lag, clock_ahead = 0, 0
-- The field is clock_before .. clock_token .. clock_kind.
local clock_before, clock_token, clock_kind = nil, '0000000000000000', ARGV[3] ~= '' and '1' or '0'
do
	local now, usec
	if clock_kind == '1' then
		now, usec = tonumber(ARGV[3]), 0
	else
		local t = call('time')
		local us = tonumber(t[2])
		usec = us % 1000
		now = t[1] * 1000 + (us - usec) / 1000
	end
	local text, mark, anchor = clock_text or call('hget', KEYS[1], 'c'), 0, NO_ANCHOR
	if text and #text == 65 then
		mark, anchor, clock_token = tonumber(sub(text, 1, 16)), sub(text, 17, 48), sub(text, 49, 64)
		if sub(text, 65) ~= clock_kind then return {3, mark * 1000} end
	end
	local max, min, floor = math.max, math.min, math.floor
	local real_at, clock_at, lag = tonumber(sub(anchor, 1, 16)), tonumber(sub(anchor, 17)), 0
	if clock_at == 0 then
		anchor = NO_ANCHOR
	elseif clock_at < real_at then
		lag = max(0, real_at + floor(max(0, mark - clock_at + 1) / 2) - mark)
	else
		lag = max(0, mark - clock_at) + 1
	end
	local expect, least = tonumber(ARGV[1]), tonumber(ARGV[2])
	local jump = expect > 0 and now > expect + lag + JUMP
	if jump and least >= 0 then return {1, now * 1000} end
	if now >= mark and (jump or anchor == NO_ANCHOR and now >= least) then
		anchor = NO_ANCHOR
	else
		local real, to, kept, behind = now, mark, false, false
		if anchor ~= NO_ANCHOR and clock_at < real_at then
			behind = real < mark
			if not behind then
				local fast = clock_at + 2 * max(0, real - real_at)
				to = max(mark, fast)
				kept = to == fast
			end
		else
			local anchored = anchor ~= NO_ANCHOR and real >= real_at
			local slow = anchored and clock_at + floor((real - real_at) / 2) or max(mark, least)
			behind = real < mark or real < slow and (expect == 0 or anchor == NO_ANCHOR)
			if behind then
				if expect >= 0 then to = max(mark, expect > 0 and min(slow, expect) or slow) end
				kept = anchored and to == slow
			else
				to = max(mark, real - lag)
				if expect > 0 then to = max(mark, min(to, expect)) end
			end
		end
		if behind and not kept and expect >= 0 then
			local lost = expect > 0 and min(lag + max(to, expect) - to, floor(real / 2)) or 0
			real_at, clock_at = real - 2 * lost, to - lost
		elseif not behind and (expect == 0 or to >= real) then
			to, real_at, clock_at = real, 0, 0
		elseif not behind and not kept then
			real_at, clock_at = real, to
		end
		now, usec = to, 0
		if clock_at == 0 then
			anchor = NO_ANCHOR
		else
			anchor = fmt('%016d%016d', real_at, clock_at)
			if clock_at < real_at then
				clock_lag = max(0, real - to)
			else
				clock_lag = max(max(0, to - clock_at) + 1, max(0, real - real_at) - max(0, to - clock_at))
			end
		end
	end
	clock_ms, clock_us, clock_before = now, now * 1000 + usec, fmt('%016d', now) .. anchor
	clock_seen = clock_us
	if clock_lag > 0 then
		clock_seen, clock_ahead = fmt('%.0f %.0f', clock_us, clock_lag), clock_lag + math.min(clock_lag, SLACK)
	end
end
