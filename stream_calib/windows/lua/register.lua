-- Gives a shard a first mark for the inputs that it does not know, or starts a wiped shard again.
-- KEYS: 1 m (marks)
-- ARGV: 1 msgpack {marks = {{input, next, clock or false}}, origin = last pane to ignore, or false}
-- Answer: "ok". With an origin nothing is done on a shard that knows anything: another worker has started it.
local meta = KEYS[1]
local call = cmsgpack.unpack(ARGV[1])
if call.origin and redis.call('EXISTS', meta) == 1 then return 'ok' end
for _, mark in ipairs(call.marks) do
    if redis.call('HSETNX', meta, 'n:' .. mark[1], mark[2]) == 1 and mark[3] then
        redis.call('HSET', meta, 'c:' .. mark[1], mark[3])
    end
end
if call.origin then
    redis.call('HSET', meta, 'removed', call.origin, 'cleaned', call.origin, 'origin', call.origin)
end
return 'ok'
