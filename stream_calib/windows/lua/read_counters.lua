-- Counters of a pane, and where each input's clock first reached it. (after clocks) Only reads.
-- KEYS: 1 m (marks)  2 c (counters)  3.. n<input> (clock entries), in the order of the inputs
-- ARGV: 1 msgpack guard  2 msgpack: {kinds, inputs}
-- Answer: status, cut (msgpack), counts, for each input {pane, position, clock or ""}
local ask = cmsgpack.unpack(ARGV[1])
local status, cut = admit(KEYS[1], ask)
if status ~= 'ok' then return {status} end
local wanted = cmsgpack.unpack(ARGV[2])
local counts, entries = {}, {}
for i, kind in ipairs(wanted.kinds) do counts[i] = redis.call('HGET', KEYS[2], kind .. ':' .. ask.pane) or '0' end
for i, input in ipairs(wanted.inputs) do
    local found, place
    local all = redis.call('HGETALL', KEYS[2 + i])
    for k = 1, #all, 2 do
        -- The first place, not that of the least pane: a label may be dated ahead of a broker clock.
        if tonumber(all[k]) >= ask.pane then
            local position = tonumber(string.match(all[k + 1], '^%d+'))
            if not found or position < found then found, place = position, all[k + 1] end
        end
    end
    if not found then
        local now = redis.call('HMGET', KEYS[1], 'n:' .. input, 'c:' .. input)
        place = (now[1] or '0') .. ':' .. (now[2] or '')
    end
    entries[i] = place
end
return {status, cmsgpack.pack(cut), counts, entries}
