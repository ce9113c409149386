-- limit_jobs.lua: keep count of the jobs of namespaces that have a limit, or of the bytes
-- of these, by keys of their own. Not part of any shard, so it has none of the common arguments.
-- KEYS  1 hash: namespace -> jobs; "#census" -> id of the last census, "#began" -> when, ms,
--         "#counted" -> when the last one that ended began
--       2 hash: namespace -> jobs that were taken since the census began
-- ARGV  1 what to do; then
--       take   namespace, how many, limit       Reply {granted, jobs}
--       give   namespace, how many              Reply {1}
--       begin  id, least pause between two, ms  Reply {1 begun, 0 not due}
--       end    id, namespace, jobs ...          Reply {1 taken over, 0 another one has begun}
-- Guards: no more are granted than the limit leaves. A census that another one has
--       overtaken changes nothing.
-- What is taken and given during a census is counted until the next one.
-- May be repeated: what is taken or given twice is put right by the next census.
local MOST = 10000
local used, new, act = KEYS[1], KEYS[2], ARGV[1]

local function number(key, field) return tonumber(call('hget', key, field) or 0) or 0 end

if act == 'take' then
	local namespace, jobs = ARGV[2], number(used, ARGV[2])
	local n = math.max(0, math.min(tonumber(ARGV[3]), tonumber(ARGV[4]) - jobs))
	if n > 0 then
		jobs = jobs + n
		call('hset', used, namespace, int(jobs))
		-- Of what is created in more namespaces than these, a census may miss some.
		if call('hget', new, namespace) or call('hlen', new) < MOST then
			call('hset', new, namespace, int(number(new, namespace) + n))
		end
	end
	return {n, jobs}
end
if act == 'give' then
	local namespace, n = ARGV[2], tonumber(ARGV[3])
	-- What is given may have been there before the census began, so it stays among the new.
	if call('hget', used, namespace) then
		call('hset', used, namespace, int(math.max(0, number(used, namespace) - n)))
	end
	return {1}
end
if act == 'begin' then
	local t = call('time')
	local now = t[1] * 1000 + math.floor(t[2] / 1000)
	local began = number(used, '#began')
	if began <= now and now - began < tonumber(ARGV[3]) then return {0} end
	call('hset', used, '#census', ARGV[2], '#began', int(now))
	call('del', new)
	return {1}
end
if call('hget', used, '#census') ~= ARGV[2] then return {0} end
local began, counts, list = call('hget', used, '#began'), {}, {}
for a = 3, #ARGV, 2 do counts[ARGV[a]] = tonumber(ARGV[a + 1]) end
local late = call('hgetall', new)
for i = 1, #late, 2 do counts[late[i]] = (counts[late[i]] or 0) + tonumber(late[i + 1]) end
for namespace, n in pairs(counts) do
	list[#list + 1] = namespace
	list[#list + 1] = int(n)
end
call('del', used, new)
call('hset', used, '#began', began, '#counted', began)
wide('hset', used, list)
return {1}
