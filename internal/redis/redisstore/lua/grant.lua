-- grant.lua: list the commands that the user may not call from a script. It works on a
-- key that nothing else uses, in ways that leave nothing behind.
-- KEYS  1 a key of the keyspace
-- ARGV  1 commands
-- Reply the names of those that are refused
-- May be repeated: it stores nothing.
local key = KEYS[1]
local harmless = {
	time = {}, get = {key}, del = {key}, mget = {key}, getrange = {key, 0, 0},
	pexpire = {key, 1}, pttl = {key}, set = {key, '', 'xx'},
	hget = {key, 'f'}, hmget = {key, 'f'}, hdel = {key, 'f'}, hstrlen = {key, 'f'}, hlen = {key}, hgetall = {key},
	zrem = {key, 'm'}, zrange = {key, 0, 0}, zscore = {key, 'm'}, zmscore = {key, 'm'},
	zcount = {key, 0, 0}, zcard = {key}, zadd = {key, 'xx', 0, 'm'},
	-- These store something, which goes again: the script is one step.
	mset = {key, ''}, msetnx = {key, ''}, hset = {key, 'f', ''}, xadd = {key, '*', 'f', ''},
	xrevrange = {key, '+', '-', 'count', 1},
}
local refused = {}
for _, name in ipairs(ARGV) do
	local args = harmless[name]
	if not args then return redis.error_reply('ERR ' .. name .. ' is not known to grant.lua') end
	local answer = redis.pcall(name, unpack(args))
	if type(answer) == 'table' and answer.err then
		refused[#refused + 1] = name
	end
	redis.pcall('del', key)
end
return refused
