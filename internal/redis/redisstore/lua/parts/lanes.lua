-- lanes.lua: put before the scripts that write records.

-- update_lanes corrects the index of lanes for the lanes at these places in KEYS. It
-- returns what a writing script reports: {place, due, place, due ...} of the lanes whose first
-- due time became earlier, and the value of the lock, whose holder is to be notified. A lane's
-- name follows "...l:" in its key, whose prefix is two bytes shorter than "...lanes".
local function update_lanes(index, lock, places)
	if #places == 0 then return '', '' end
	local skip, names, earlier, set, gone = #index - 2, {}, '', nil, nil
	for i, k in ipairs(places) do names[i] = sub(KEYS[k], skip) end
	local before = call('zmscore', index, unpack(names))
	for i, k in ipairs(places) do
		local first = call('zrange', KEYS[k], '0', '0', 'withscores')[2]
		if not first then
			if before[i] then
				gone = gone or {}
				gone[#gone + 1] = names[i]
			end
		elseif first ~= before[i] then -- most often nothing has changed
			local due, old = math.max(math.min(tonumber(first), NEVER), 0), before[i] and tonumber(before[i])
			if due ~= old then
				set = set or {}
				set[#set + 1], set[#set + 2] = int(due), names[i]
			end
			if due < (old or NEVER) then
				if earlier == '' then earlier = {} end
				earlier[#earlier + 1], earlier[#earlier + 2] = k, due
			end
		end
	end
	if set then call('zadd', index, unpack(set)) end
	if gone then call('zrem', index, unpack(gone)) end
	return earlier, earlier ~= '' and call('get', lock) or ''
end
