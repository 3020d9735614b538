-- Gives a shard a first mark for the inputs that it does not know, or starts a wiped shard again.
-- KEYS: 1 m (marks), then n<input> of each mark with a pane
-- ARGV: 1 msgpack {marks = {{input, next, clock or false, first clock or false, pane that the clock has reached or false}},
--       origin = last pane to ignore, or false; scores, labels = numbers of registered inputs, or 0}
-- Answer: "ok". With an origin nothing is done on a shard that knows anything: another worker has started it.
local meta = KEYS[1]
local call = cmsgpack.unpack(ARGV[1])
local known = redis.call('EXISTS', meta) == 1
if call.origin and known then return 'ok' end
local key = 1
for _, mark in ipairs(call.marks) do
    if mark[5] then key = key + 1 end
    if redis.call('HSETNX', meta, 'n:' .. mark[1], mark[2]) == 1 then
        if mark[3] then redis.call('HSET', meta, 'c:' .. mark[1], mark[3]) end
        if mark[4] then redis.call('HSET', meta, 'f:' .. mark[1], mark[4]) end
        if mark[5] then redis.call('HSETNX', KEYS[key], mark[5], mark[2] .. ':' .. mark[3]) end
    end
end
if call.origin then
    redis.call('HSET', meta, 'removed', call.origin, 'cleaned', call.origin, 'origin', call.origin)
end
if known or #call.marks > 0 then
    for _, side in ipairs({'scores', 'labels'}) do
        if call[side] > (tonumber(redis.call('HGET', meta, side)) or 0) then redis.call('HSET', meta, side, call[side]) end
    end
end
return 'ok'
