-- Join entries of some winners of a pane. (after clocks) Only reads.
-- KEYS: 1 m (marks)  2.. join hashes j<bucket>
-- ARGV: 1 msgpack guard  2 number of fields for each join hash, u2 each  3 the fields, 7 bytes each
-- Answer: status, cut (msgpack), entries
local status, cut = admit(KEYS[1], cmsgpack.unpack(ARGV[1]))
if status ~= 'ok' then return {status} end
local entries, at = {}, 1
for i = 2, #KEYS do
    local count = struct.unpack('<I2', ARGV[2], 2 * i - 3)
    -- One HMGET of a few hundred fields: within what Lua can unpack.
    local fields = {}
    for k = 1, count do
        fields[k] = string.sub(ARGV[3], at, at + 6)
        at = at + 7
    end
    for _, entry in ipairs(redis.call('HMGET', KEYS[i], unpack(fields))) do entries[#entries + 1] = entry end
end
return {status, cmsgpack.pack(cut), entries}
