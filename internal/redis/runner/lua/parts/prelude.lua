-- prelude.lua: the loader puts it before every script. The start of a script takes longer
-- than one record. A function costs memory, so the parts define only functions that most
-- calls need.
--
-- Only string, table, math and redis.call are used. Every key is declared in
-- KEYS, KEYS[1] is the shard's meta hash. Numbers that are stored are formatted
-- by int(), because tostring() turns large ones into 1.79e+15. Guards come
-- before writes: Redis does not undo what a script did before it failed.
--
-- Common arguments  1 greatest clock that is expected, ms; -1 the caller has not seen it yet,
--                   0 it has nothing to compare with   2 "1" accept a clock jump
--                   3 virtual clock, ms; "" real time
-- Common reply      {code, clock in us, and after a space its lag in ms if it has one, ...}; codes other than 0 mean that
--                   nothing was written:
--                   1 clock jump  2 not the holder  3 virtual clock mismatch
--                   An empty list may be '' instead: an answer takes as long as it has lists.

local call, fmt, sub, find, byte = redis.call, string.format, string.sub, string.find, string.byte
local KEYS, ARGV = KEYS, ARGV -- globals are slower
-- Where events are recorded, events.lua comes after this file: it sets record, and ends
-- a script's own arguments before those of the events.
local record, ARGS = nil, #ARGV
local clock_text = nil -- the clock as it is stored, if another part has read it before time.lua
local REGION = 4398046511104 -- 2^42: scores of region r begin at r * REGION
local NEVER = REGION - 1

local function int(n) return fmt('%d', n) end

-- wide passes a list of values to a command, by as many calls as it takes, with an option
-- after the key if there is one.
local function wide(command, key, list, option)
	for i = 1, #list, 1000 do
		local last = math.min(i + 999, #list)
		if option then
			call(command, key, option, unpack(list, i, last))
		else
			call(command, key, unpack(list, i, last))
		end
	end
end

-- sane reports whether a state has a valid header. The tail begins with a letter, so
-- exactly this many digits are header and version.
local function sane(text)
	if not text then return false end
	local _, last = find(text, '^%d+')
	return last == 36
end
