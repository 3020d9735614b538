-- One compare-and-set on a model key's state: all or nothing.
-- KEYS: 1 f (hash of fields)  then lists l:<name>, blobs b:<name> (strings), blobs to delete, lists to trim; all until they
--       are deleted here, or with the model key
-- ARGV: 1 msgpack {expect = {{field, value or false}}, fields = {{field, value}}, appends = {key index of each entry},
--       blobs = {key index of each blob}, deletes = {key index}, trims = {{key index, field that counts what was
--       dropped, number of the first entry to keep}}}  then the entries, then the blobs (cmsgpack reads no binary
--       values)
-- Answer: 1 written, 0 an expectation failed, else the name of a key that holds something of another type: nothing was
--         written
local change = cmsgpack.unpack(ARGV[1])
-- A key of another type would fail in the middle of the writes. (SET replaces whatever is there.)
local function is(key, wanted)
    local kind = redis.call('TYPE', key).ok
    return kind == wanted or kind == 'none'
end
if not is(KEYS[1], 'hash') then return KEYS[1] end
for _, list in ipairs(change.appends) do
    if not is(KEYS[list], 'list') then return KEYS[list] end
end
for _, trim in ipairs(change.trims) do
    if not is(KEYS[trim[1]], 'list') then return KEYS[trim[1]] end
end
for _, pair in ipairs(change.expect) do
    if redis.call('HGET', KEYS[1], pair[1]) ~= pair[2] then return 0 end
end
-- A server that is full refuses the first write of a script if it may need memory; what mostly frees some must not wait.
if #change.appends == 0 and #change.deletes + #change.trims > 0 then redis.call('HDEL', KEYS[1], '') end
for _, blob in ipairs(change.deletes) do redis.call('DEL', KEYS[blob]) end
for i, list in ipairs(change.appends) do redis.call('RPUSH', KEYS[list], ARGV[1 + i]) end
for i, blob in ipairs(change.blobs) do redis.call('SET', KEYS[blob], ARGV[1 + #change.appends + i]) end
for _, trim in ipairs(change.trims) do
    local dropped = tonumber(redis.call('HGET', KEYS[1], trim[2]) or '0')
    local more = math.min(trim[3] - dropped, redis.call('LLEN', KEYS[trim[1]]))
    if more > 0 then
        redis.call('LTRIM', KEYS[trim[1]], more, -1)
        redis.call('HSET', KEYS[1], trim[2], string.format('%.0f', dropped + more))
    end
end
for _, pair in ipairs(change.fields) do redis.call('HSET', KEYS[1], pair[1], pair[2]) end
-- For those who serve by the pointer, to hurry only: where the user may not publish, they see it at their next poll.
for _, pair in ipairs(change.fields) do
    if pair[1] == 'current' then redis.pcall('PUBLISH', KEYS[1], pair[2]) end
end
return 1
