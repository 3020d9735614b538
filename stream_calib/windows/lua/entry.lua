-- Join entries: what a shard knows of one event id. Field: low 7 bytes of the fingerprint, in the hash j<top 15 bits>.
--
-- Usual form, 10 bytes: one prediction, at most one label, which joins it.
--   u6  score time (ms) * 4 + label code (0 none, 1 withdrawn, 2 negative, 3 positive)
--   u4  label time - score time (ms)
-- General form: "O", u2 number of predictions, u6 time of each (one a pane), then label versions, sorted by time and from
--   the larger code to the smaller: u6 time, u1 code, u4 count.
-- (3 + 6a + 11b is never 10, so the length tells the forms apart.)
--
-- A label version is kept while a score may still come that it would join (label time > low), or while it is the best of a
-- prediction. At equal times the smaller code wins. Life: until the last prediction's pane is removed.

local function joins(score_time, label_time, horizon)
    return score_time < label_time and label_time <= score_time + horizon
end

local function decode_entry(value)
    local predictions, versions = {}, {}
    if #value == 10 then
        local packed, delta = struct.unpack('<I6I4', value)
        local time, code = math.floor(packed / 4), packed % 4
        predictions[1] = time
        if code > 0 then versions[1] = {time + delta, code, 1} end
    else
        local at = 4
        for i = 1, (struct.unpack('<I2', value, 2)) do
            predictions[i] = struct.unpack('<I6', value, at)
            at = at + 6
        end
        while at <= #value do
            local time, code, count = struct.unpack('<I6I1I4', value, at)
            versions[#versions + 1] = {time, code, count}
            at = at + 11
        end
    end
    return predictions, versions
end

-- Where the version is in the versions, or would be: they are sorted, of those that a prediction joins the last is its best.
local function place_of(versions, time, code)
    local low, high = 1, #versions + 1
    while low < high do
        local middle = math.floor((low + high) / 2)
        local version = versions[middle]
        if version[1] < time or (version[1] == time and version[2] > code) then low = middle + 1 else high = middle end
    end
    return low
end

-- The entry's bytes, or nil when nothing is left to keep; second: true when it is in the general form.
local function encode_entry(predictions, versions, low, horizon)
    local best = {}
    for i, time in ipairs(predictions) do
        local last = place_of(versions, time + horizon + 1, 255) - 1
        if last > 0 and versions[last][1] > time then best[i] = last end
    end
    local needed = {}
    for _, k in pairs(best) do needed[k] = true end
    local kept = {}
    for k, version in ipairs(versions) do
        if needed[k] or version[1] > low then kept[#kept + 1] = version end
    end
    if #predictions == 0 and #kept == 0 then return nil end
    if #predictions == 1 and #kept == 0 then return struct.pack('<I6I4', predictions[1] * 4, 0), false end
    if #predictions == 1 and #kept == 1 and joins(predictions[1], kept[1][1], horizon)
        and (kept[1][3] == 1 or kept[1][1] <= low) then
        return struct.pack('<I6I4', predictions[1] * 4 + kept[1][2], kept[1][1] - predictions[1]), false
    end
    local parts = {'O', struct.pack('<I2', #predictions)}
    for _, time in ipairs(predictions) do parts[#parts + 1] = struct.pack('<I6', time) end
    for _, version in ipairs(kept) do parts[#parts + 1] = struct.pack('<I6I1I4', version[1], version[2], version[3]) end
    return table.concat(parts), true
end

local function matches(predictions, label_time, horizon)
    for _, time in ipairs(predictions) do
        if joins(time, label_time, horizon) then return 1 end
    end
    return 0
end
