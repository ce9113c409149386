-- announce.lua: record events that no record is written with.
-- KEYS  1 meta  2 the shard's stream of events
-- ARGV  1-3 common, and events as events.lua has them
-- Reply {code, clock}
-- May be repeated: readers get it twice.
record({})
return {0, clock_seen}
