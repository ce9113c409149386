-- tick.lua: put after time.lua, but for scripts that write more of the meta hash. The clock
-- is written at once: it is right whatever the script does then.
call('hset', KEYS[1], 'c', clock_before .. clock_token .. clock_kind)
