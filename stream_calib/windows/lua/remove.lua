-- Drops part of a pane: its predictions from the given join entries and, with the last part, its lists and counters.
-- (after clocks, entry) The first call makes the pane `gone` for every reader and closes it for `apply`, so what is listed
-- in it afterwards is all of it. Repeating any call changes nothing.
-- KEYS: 1 m (marks)  2 c (counters)  3 p<pane>  4 e<pane>  5.. n<input>, then join hashes j<bucket>
-- ARGV: 1 msgpack guard  2 msgpack {last, kinds, inputs, recorded = {{kind, n}}: see ShardStore.remove}  3 operations of 9 bytes: u2 index into KEYS, 7 bytes field
-- Answer: "ok"; "done": the pane was wholly dropped before; "wait": the clocks or an earlier pane forbid it now
local meta = KEYS[1]
local ask = cmsgpack.unpack(ARGV[1])
local part = cmsgpack.unpack(ARGV[2])
local removed = tonumber(redis.call('HGET', meta, 'removed'))
local cleaned = tonumber(redis.call('HGET', meta, 'cleaned'))
if cleaned and ask.pane <= cleaned then return 'done' end
-- A server that is full refuses the first write of a script if it may need memory. This one may not, and what follows
-- frees more than it takes.
redis.call('HDEL', meta, '')
if removed ~= ask.pane then
    if removed and (ask.pane ~= removed + 1 or removed ~= cleaned) then return 'wait' end
    -- A pane that a wiped shard answers as gone was read before; it must still be dropped.
    if admit(meta, ask) == 'wait' then return 'wait' end
    redis.call('HSET', meta, 'removed', ask.pane)
end
local low = (least_clock(meta, ask.scores) or -1) - ask.score_lateness_ms
local operations = ARGV[3]
for offset = 1, #operations, 9 do
    local key = KEYS[struct.unpack('<I2', operations, offset)]
    local field = string.sub(operations, offset + 2, offset + 8)
    local value = redis.call('HGET', key, field)
    if value then
        local predictions, versions = decode_entry(value)
        local kept = {}
        for _, time in ipairs(predictions) do
            if math.floor(time / ask.pane_ms) > ask.pane then kept[#kept + 1] = time end
        end
        local entry = encode_entry(kept, versions, low, ask.horizon_ms)
        if not entry then
            redis.call('HDEL', key, field)
        elseif entry ~= value then
            redis.call('HSET', key, field, entry)
        end
    end
end
if part.last then
    redis.call('DEL', KEYS[3], KEYS[4])
    local later = later_pane(low, ask.pane, ask.pane_ms)
    for _, pair in ipairs(part.recorded) do
        local since = (tonumber(redis.call('HGET', KEYS[2], pair[1] .. ':' .. ask.pane)) or 0) - pair[2]
        if since > 0 then redis.call('HINCRBY', KEYS[2], kind_after_mature(pair[1]) .. ':' .. later, since) end
    end
    for _, kind in ipairs(part.kinds) do redis.call('HDEL', KEYS[2], kind .. ':' .. ask.pane) end
    for i = 1, #part.inputs do
        for _, reached in ipairs(redis.call('HKEYS', KEYS[4 + i])) do
            if tonumber(reached) <= ask.pane then redis.call('HDEL', KEYS[4 + i], reached) end
        end
    end
    redis.call('HSET', meta, 'cleaned', ask.pane)
end
return 'ok'
