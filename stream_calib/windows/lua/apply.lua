-- Applies one batch to one shard, if and only if the shard is exactly at the start of every range. (after clocks, entry)
--
-- KEYS: 1 m   hash: marks (`n:`, `c:`, `f:`), `scores`, `labels`, `removed`, `cleaned`, `origin`, `last`; for the life of the model key
--       2 c   hash: counters `<kind>:<pane>`, until the pane is removed
--       then one n<input> hash for each range (clock entries: pane reached -> "position:clock before"; until removed),
--       then the lists p<pane> (chunks of rows as they came) and e<pane> (fingerprints of held label versions),
--       then the join hashes j<bucket>: first those that scores go to, then those of labels alone.
-- ARGV: 1 msgpack: the call (shard_scripts.py says what is in it)
--       2 score operations of 19 bytes: u2 index into KEYS, 7 bytes field, 10 bytes entry
--       3 label operations of 19 bytes: u2 index of the join hash, u2 index of the e list, u6 time, u1 code (+ 4 where the
--         call's `reaches` has the first score time that it can reach, in order), 8 bytes fingerprint (big-endian; its last
--         7 bytes are the field)
--       4.. chunks of rows
-- Answer: "ok"; "restarted" when this is not the run of the server that the call is for; for each range its input, next position and
--         clock when nothing was applied; the name of a key that holds something of another type: nothing was written

local meta, counters = KEYS[1], KEYS[2]
local call = cmsgpack.unpack(ARGV[1])
local horizon, pane_ms = call.horizon_ms, call.pane_ms

if call.run and not string.find(redis.call('INFO', 'server'), 'run_id:' .. call.run, 1, true) then
    return 'restarted'
end

local fits = (tonumber(redis.call('HGET', meta, 'scores')) or 0) <= #call.scores
local at = {}
for i, range in ipairs(call.ranges) do
    local found = redis.call('HMGET', meta, 'n:' .. range.input, 'c:' .. range.input)
    at[i] = {range.input, found[1], found[2]}
    if tonumber(found[1]) ~= range.start then fits = false end
end
if not fits then return at end

-- A key of another type would fail in the middle of the writes.
local first_list = 3 + #call.ranges
local first_join = first_list + call.lists
local first_of_labels = first_join + call.score_joins
for i = 1, first_of_labels - 1 do
    local is_list = i >= first_list and i < first_join
    if type(redis.pcall(is_list and 'LLEN' or 'HLEN', KEYS[i])) == 'table' then return KEYS[i] end
end
-- Where no score of the call goes, reading what is there for the first label of an id shows the type as well.
local labels, found_for, last_index, last_field = ARGV[3], {}, nil, nil
for offset = 1, #labels, 19 do
    local index, field = struct.unpack('<I2xxxxxxxxxxc7', labels, offset)
    if index >= first_of_labels and (index ~= last_index or field ~= last_field) then
        local found = redis.pcall('HGET', KEYS[index], field)
        if type(found) == 'table' then return KEYS[index] end
        found_for[offset] = found
        last_index, last_field = index, field
    end
end

local dropped = redis.call('HMGET', meta, 'removed', 'origin')
local removed, origin = tonumber(dropped[1]) or -1, tonumber(dropped[2]) or -1
local score_clock = least_clock(meta, call.scores)
local low = score_clock and score_clock - call.score_lateness_ms or -1
local outcomes = {matched = {}, label_leaked = {}, label_beyond_horizon = {}}

local function note(kind, label_time, n)
    if kind then
        local counts, pane = outcomes[kind], math.floor(label_time / pane_ms)
        counts[pane] = (counts[pane] or 0) + n
    end
end

local function rematch(before, after, versions)
    for _, version in ipairs(versions) do
        local was = outcome(before, version[1], version[4], horizon)
        local is = outcome(after, version[1], version[4], horizon)
        if was ~= is then
            note(was, version[1], -version[3])
            note(is, version[1], version[3])
        end
    end
end

-- Operations on one id follow each other (redis_calls.py), so that its entry is read and written once, however many they are:
-- an id that stands for everybody would else take the square of that.
local key, field, value, predictions, versions, held

local function turn_to(other_key, other_field, other_value)
    if key == other_key and field == other_field then return end
    if key then
        local entry, general = encode_entry(predictions, versions, low, horizon)
        if entry and entry ~= value then
            redis.call('HSET', key, field, entry)
            if general then
                for list, fingerprint in pairs(held) do redis.call('RPUSH', list, fingerprint) end
            end
        elseif not entry and value then
            redis.call('HDEL', key, field)
        end
    end
    key, field, held = other_key, other_field, {}
    if key then
        value = other_value
        if value then predictions, versions = decode_entry(value) else predictions, versions = {}, {} end
    end
end

local scores, some_are_gone = ARGV[2], call.least_score_pane <= removed
for offset = 1, #scores, 19 do
    local index, its_field, entry = struct.unpack('<I2c7c10', scores, offset)
    local its_key, wanted = KEYS[index], true
    if some_are_gone then
        wanted = math.floor(struct.unpack('<I6', entry) / 4 / pane_ms) > removed
    end
    if wanted and redis.call('HSETNX', its_key, its_field, entry) == 0 then
        if key ~= its_key or field ~= its_field then turn_to(its_key, its_field, redis.call('HGET', its_key, its_field)) end
        local time = math.floor(struct.unpack('<I6', entry) / 4)
        local pane, known = math.floor(time / pane_ms), nil
        for i, other in ipairs(predictions) do
            if math.floor(other / pane_ms) == pane then known = i end
        end
        if not known or time < predictions[known] then
            local after = {}
            for i, other in ipairs(predictions) do after[i] = other end
            after[known or #after + 1] = time
            rematch(predictions, after, versions)
            predictions = after
        end
    end
end
turn_to(nil)

-- Most labels are the first one of a single prediction, and join it. What is written is what turn_to would write.
local function joins_at_once(its_key, its_field, found, time, code)
    if not found or #found ~= 10 then return false end
    local packed = struct.unpack('<I6', found)
    local score_time = packed / 4
    if packed % 4 > 0 or not joins(score_time, time, 0, horizon) then return false end
    redis.call('HSET', its_key, its_field, struct.pack('<I6I4', packed + code, time - score_time))
    note('matched', time, 1)
    return true
end

local reaches, reach = call.reaches, 0
for offset = 1, #labels, 19 do
    local index, held_index, time, code, first_byte, its_field = struct.unpack('<I2I2I6I1c1c7', labels, offset)
    local from = 0
    if code > 3 then
        reach = reach + 1
        code, from = code - 4, reaches[reach]
    end
    -- A label of a pane that is gone: so are all predictions that it could join.
    if math.floor(time / pane_ms) > removed then
        local its_key, at_once = KEYS[index], false
        if key ~= its_key or field ~= its_field then
            local found = found_for[offset]
            if found == nil then found = redis.call('HGET', its_key, its_field) end
            -- Not where the next label is for the same id: then both are held together.
            at_once = from == 0 and string.sub(labels, offset + 31, offset + 37) ~= its_field
                and joins_at_once(its_key, its_field, found, time, code)
            if not at_once then turn_to(its_key, its_field, found) end
        end
        if not at_once then
            note(outcome(predictions, time, from, horizon), time, 1)
            local at = place_of(versions, time, code, from)
            local version = versions[at]
            if version and version[1] == time and version[2] == code and version[4] == from then
                version[3] = version[3] + 1
            else
                table.insert(versions, at, {time, code, 1, from})
                held[KEYS[held_index]] = first_byte .. its_field
            end
        end
    end
end
turn_to(nil)

for i, chunk in ipairs(call.chunks) do
    if chunk.pane > removed then
        redis.call('RPUSH', KEYS[chunk.key], ARGV[3 + i])
        redis.call('HINCRBY', counters, 'accepted:' .. chunk.pane, chunk.n)
    end
end
for _, count in ipairs(call.counts) do
    local kind, pane = count[1], count[2]
    if pane > origin then
        -- What comes for a pane that was dropped is counted in a later one; up to the origin it was, already.
        if pane <= removed then kind, pane = kind_after_mature(kind), later_pane(low, removed, pane_ms) end
        redis.call('HINCRBY', counters, kind .. ':' .. pane, count[3])
    end
end
for kind, counts in pairs(outcomes) do
    for pane, change in pairs(counts) do
        if pane > removed and change ~= 0 then redis.call('HINCRBY', counters, kind .. ':' .. pane, change) end
    end
end
if call.last_pane and call.last_pane > (tonumber(redis.call('HGET', meta, 'last')) or -1) then
    redis.call('HSET', meta, 'last', call.last_pane)
end
for i, range in ipairs(call.ranges) do
    for _, entry in ipairs(range.entries) do
        redis.call('HSETNX', KEYS[2 + i], entry[1], entry[2])
    end
    redis.call('HSET', meta, 'n:' .. range.input, range.stop)
    if range.clock then redis.call('HSET', meta, 'c:' .. range.input, range.clock) end
    if range.first_clock then redis.call('HSETNX', meta, 'f:' .. range.input, range.first_clock) end
end
return 'ok'
