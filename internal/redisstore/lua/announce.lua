-- announce.lua: record events that no record is written with.
-- KEYS  1 meta  2 the shard's stream of events
-- ARGV  1-3 common, and events as events.lua has them
-- Reply {code, clock}
-- May be repeated: readers hear of it twice.
local code = start()
if code ~= 0 then return {code, clock.us} end
record({})
return {0, clock.us}
