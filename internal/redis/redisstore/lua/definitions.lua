-- definitions.lua: read definitions by name, bounded by bytes. Changes nothing.
-- KEYS  1 definitions
-- ARGV  records
-- Reply {definition ...} of the first records, of one at least; false for what does not exist
-- May be repeated.
return bounded_fields(KEYS[1], ARGV, 1, #ARGV)
