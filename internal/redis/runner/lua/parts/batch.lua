-- batch.lua: put before time.lua for a script that keeps its batch in the meta hash. It reads the batch with the clock.
-- KEYS  1 meta
-- ARGV  7 field of the batch
local last_batch
do
	local fields = call('hmget', KEYS[1], 'c', ARGV[7])
	clock_text, last_batch = fields[1], fields[2]
end
