-- time.lua: put before every script of a shard. It moves the shard's clock, as
-- Clock.Advance of package lease does, and refuses the call if it cannot. tick.lua writes
-- it, or the script itself.
--
-- The meta field "c" is fixed text:
--   clock, ms (16) | anchor, real (16) | anchor, clock (16) | token (16) | virtual (1)
--
-- The clock is Redis's TIME as long as that does not step back. Behind the clock it
-- goes on at half of TIME's rate from an anchor until TIME has caught up, and never
-- faster than the caller's clock: TIME may have been put right. Far ahead of what the
-- caller expects it is refused until a caller accepts it.
local JUMP = 60000 -- ms that the clock may be ahead of what the caller expects
local NO_ANCHOR = '00000000000000000000000000000000'
local clock_ms, clock_us
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
	local text, mark, anchor = call('hget', KEYS[1], 'c'), 0, NO_ANCHOR
	if text and #text == 65 then
		mark, anchor, clock_token = tonumber(sub(text, 1, 16)), sub(text, 17, 48), sub(text, 49, 64)
		if sub(text, 65) ~= clock_kind then return {3, mark * 1000} end
	end
	local expect = tonumber(ARGV[1])
	if expect > 0 and now > expect + JUMP and ARGV[2] ~= '1' then return {1, now * 1000} end
	if anchor ~= NO_ANCHOR or now < mark then
		local real, slow, leapt = now, mark, false
		local anchor_real, anchor_clock = tonumber(sub(anchor, 1, 16)), tonumber(sub(anchor, 17))
		local anchored = anchor_clock ~= 0 and real >= anchor_real
		if anchored then slow = anchor_clock + math.floor((real - anchor_real) / 2) end
		if expect > 0 and slow > expect then
			slow, leapt = math.max(mark, expect), true
		end
		if real >= slow and real >= mark then
			anchor = NO_ANCHOR
		elseif not anchored or leapt or slow < mark then
			now = math.max(mark, slow)
			anchor, usec = fmt('%016d%016d', real, now), 0
		else
			now, usec = slow, 0
		end
	end
	clock_ms, clock_us, clock_before = now, now * 1000 + usec, fmt('%016d', now) .. anchor
end
