-- limit_queues.lua: store the settings of a queue. Not part of any shard, so it has
-- none of the common arguments.
-- KEYS  1 hash: "namespace/queue" -> settings
--       2 hash: namespace -> queues of it that have settings, "#all" -> queues that have settings,
--         "#counted" -> when all were counted last, ms. Nodes of older versions do not keep it:
--         it counts only while "#all" is right.
--       3 hash: "namespace/queue" -> identity that gave the queue its settings
--       4 hash: identity -> its entries in 3, "#counted" -> when these were counted last, ms. Nodes of
--         older versions keep neither 3 nor 4: an entry of a queue that has no settings does not count.
-- ARGV  1 field  2 settings, protobuf; "" deletes  3 most queues with settings
--       4 "1": only if they are still 5, "" for none, or what they are to be already
--       6 identity whose share new settings are part of, "" none  7 "1": they pause the queue
-- Reply {0 stored, 1 there are too many, 2 they are others, 3 the namespace has too many, 4 the identity has too many}
-- Guards: a queue too many is refused; one that has settings may always change them. A
--       namespace has no more than are free: alone half of all. An identity has no more than a third of what
--       is free: alone a quarter of all. While fewer are taken that holds without counting. The last 64th
--       is for pauses. All are counted at most once a minute while only nodes of this version write.
-- May be repeated: the same settings are stored again.
local RESERVE = 64

local key, counts, owners, owned = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local field, value, identity = ARGV[1], ARGV[2], ARGV[6]
local stored = call('hget', key, field)
if ARGV[4] == '1' and (stored or '') ~= ARGV[5] and stored ~= value then return {2} end
if value == '' and not stored then return {0} end
if value ~= '' and stored then
	call('hset', key, field, value)
	return {0}
end
local namespace, all, most = sub(field, 1, find(field, '/', 1, true) - 1), call('hlen', key), tonumber(ARGV[3])
local kept = call('hmget', counts, '#all', '#counted', namespace)
local right, n, held = tonumber(kept[1]) == all, tonumber(kept[3]) or 0, 0

-- replace_counts replaces a hash of counts.
local function replace_counts(hash, numbers, list)
	for name, number in pairs(numbers) do
		list[#list + 1] = name
		list[#list + 1] = int(number)
	end
	call('del', hash)
	wide('hset', hash, list)
end

-- count_all counts the queues of all namespaces and identities, and removes owners of settings that are gone.
local function count_all(now)
	local fields, known, of_namespaces, of_identities, gone = call('hgetall', key), {}, {}, {}, {}
	for i = 1, #fields, 2 do
		known[fields[i]] = true
		local slash = find(fields[i], '/', 1, true)
		if slash then
			local name = sub(fields[i], 1, slash - 1)
			of_namespaces[name] = (of_namespaces[name] or 0) + 1
		end
	end
	fields = call('hgetall', owners)
	for i = 1, #fields, 2 do
		local name = fields[i + 1]
		if known[fields[i]] then
			of_identities[name] = (of_identities[name] or 0) + 1
		else
			gone[#gone + 1] = fields[i]
		end
	end
	wide('hdel', owners, gone)
	replace_counts(counts, of_namespaces, {'#all', int(all), '#counted', int(now)})
	replace_counts(owned, of_identities, {'#counted', int(now)})
	right, n, held = true, of_namespaces[namespace] or 0, of_identities[identity] or 0
end

-- add_count changes a count.
local function add_count(hash, name, number)
	if number > 0 then call('hset', hash, name, int(number)) else call('hdel', hash, name) end
end

-- set_owner stores to whom the settings belong, "" nobody.
local function set_owner(new)
	local old = call('hget', owners, field) or ''
	if old == new then return end
	if old ~= '' then add_count(owned, old, (tonumber(call('hget', owned, old)) or 0) - 1) end
	if new == '' then
		call('hdel', owners, field)
	else
		call('hset', owners, field, new)
		add_count(owned, new, (tonumber(call('hget', owned, new)) or 0) + 1)
	end
end

if value ~= '' then
	local free = most - all
	if free <= 0 or free <= most / RESERVE and ARGV[7] ~= '1' then return {1} end
	local has_stale = call('hlen', owners) >= most
	if 4 * all >= most or has_stale then
		local half = 2 * all >= most
		local t, of_owners = call('time'), call('hmget', owned, '#counted', identity)
		local now = t[1] * 1000 + math.floor(t[2] / 1000)
		local age, age_of_owners = now - (tonumber(kept[2]) or 0), now - (tonumber(of_owners[1]) or 0)
		held = tonumber(of_owners[2]) or 0
		-- Changes by older nodes may make up for one another in "#all": hence the hour, and
		-- the minute where a namespace or an identity would be refused.
		if has_stale or half and (not right or age < 0 or age > 3600000 or n >= free and age > 60000)
			or 3 * held >= free and (age_of_owners < 0 or age_of_owners > 60000) then count_all(now) end
		if half and n >= free then return {3} end
		if 3 * held >= free then return {4} end
	end
end
local step = value == '' and -1 or 1
if value == '' then
	call('hdel', key, field)
	set_owner('')
else
	call('hset', key, field, value)
	set_owner(identity)
end
if not right then
	call('hdel', counts, '#all')
	return {0}
end
call('hset', counts, '#all', int(all + step))
add_count(counts, namespace, n + step)
return {0}
