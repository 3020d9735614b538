-- Join entries: what a shard knows of one event id. Field: low 7 bytes of the fingerprint, in the hash j<top 15 bits>.
--
-- Usual form, 10 bytes: one prediction, at most one label, which joins it.
--   u6  score time (ms) * 4 + label code (0 none, 1 withdrawn, 2 negative, 3 positive)
--   u4  label time - score time (ms)
-- General form: "O", u2 number of predictions, u6 time of each (one a pane), then label versions, sorted by time and from
--   the larger code to the smaller: u6 time, u1 code, u4 count.
-- (3 + 6a + 11b is never 10, so the length tells the forms apart.)
-- Form with reaches: "F" in place of "O", and after each version u6: the first score time (ms) that it can reach. Only where a
--   version has one that cuts its horizon short (broker clock) and matters still; 3 + 6a + 17b is never 10 either.
--
-- A label version is kept while a score may still come that it would join (label time > low), or while it is the best of a
-- prediction. At equal times the smaller code wins. Life: until the last prediction's pane is removed.

-- A version is {time, code, count, from}: `from` is the first score time that it can reach, 0 where the horizon alone says.
local function joins(score_time, label_time, from, horizon)
    return score_time < label_time and label_time <= score_time + horizon and from <= score_time
end

local function decode_entry(value)
    local predictions, versions = {}, {}
    if #value == 10 then
        local packed, delta = struct.unpack('<I6I4', value)
        local time, code = math.floor(packed / 4), packed % 4
        predictions[1] = time
        if code > 0 then versions[1] = {time + delta, code, 1, 0} end
    else
        local at, reaches = 4, string.byte(value) == 70
        for i = 1, (struct.unpack('<I2', value, 2)) do
            predictions[i] = struct.unpack('<I6', value, at)
            at = at + 6
        end
        while at <= #value do
            local time, code, count = struct.unpack('<I6I1I4', value, at)
            at = at + 11
            local from = 0
            if reaches then
                from = struct.unpack('<I6', value, at)
                at = at + 6
            end
            versions[#versions + 1] = {time, code, count, from}
        end
    end
    return predictions, versions
end

-- Where the version is in the versions, or would be: they are sorted, of those that a prediction joins the last is its best.
local function place_of(versions, time, code, from)
    local low, high = 1, #versions + 1
    while low < high do
        local middle = math.floor((low + high) / 2)
        local version = versions[middle]
        if version[1] < time
            or (version[1] == time and (version[2] > code or (version[2] == code and version[4] < from))) then
            low = middle + 1
        else
            high = middle
        end
    end
    return low
end

-- The entry's bytes, or nil when nothing is left to keep; second: true when it is in the general form.
local function encode_entry(predictions, versions, low, horizon)
    local best = {}
    for i, time in ipairs(predictions) do
        local last = place_of(versions, time + horizon + 1, 255, 0) - 1
        while last > 0 and versions[last][1] > time and versions[last][4] > time do last = last - 1 end
        if last > 0 and versions[last][1] > time then best[i] = last end
    end
    local needed = {}
    for _, k in pairs(best) do needed[k] = true end
    local kept, reaches = {}, false
    for k, version in ipairs(versions) do
        if needed[k] or version[1] > low then
            kept[#kept + 1] = version
            if version[4] > 0 then reaches = true end
        end
    end
    if #predictions == 0 and #kept == 0 then return nil end
    if #predictions == 1 and #kept == 0 then return struct.pack('<I6I4', predictions[1] * 4, 0), false end
    -- No score can come any more that a version up to `low` would join, so neither its count nor its reach matters.
    if #predictions == 1 and #kept == 1 and joins(predictions[1], kept[1][1], kept[1][4], horizon)
        and ((kept[1][3] == 1 and not reaches) or kept[1][1] <= low) then
        return struct.pack('<I6I4', predictions[1] * 4 + kept[1][2], kept[1][1] - predictions[1]), false
    end
    local parts = {reaches and 'F' or 'O', struct.pack('<I2', #predictions)}
    for _, time in ipairs(predictions) do parts[#parts + 1] = struct.pack('<I6', time) end
    for _, version in ipairs(kept) do
        parts[#parts + 1] = struct.pack('<I6I1I4', version[1], version[2], version[3])
        if reaches then parts[#parts + 1] = struct.pack('<I6', version[4]) end
    end
    return table.concat(parts), true
end

-- What becomes of a label whose id has these predictions: the name of its counter, nil where there is none.
local function outcome(predictions, label_time, from, horizon)
    local found
    for _, time in ipairs(predictions) do
        if joins(time, label_time, from, horizon) then return 'matched' end
        if time >= label_time then found = 'label_leaked' elseif not found then found = 'label_beyond_horizon' end
    end
    return found
end
