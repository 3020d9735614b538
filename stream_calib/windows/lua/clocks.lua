-- Clocks of a shard, in its hash m: `n:<input>` next position, `c:<input>` clock, `f:<input>` the first value of the clock
-- (both absent: no event yet).
-- `scores`, `labels`: how many inputs are registered; who knows fewer would take a watermark for higher than it is.
-- A watermark is the least clock of the given inputs; nil when one of them is unknown or has no clock (minus infinity).

local function least_clock(meta, inputs, excluded)
    local low
    for _, input in ipairs(inputs) do
        if not (excluded and excluded[input]) then
            local clock = tonumber(redis.call('HGET', meta, 'c:' .. input))
            if not clock then return nil end
            if not low or clock < low then low = clock end
        end
    end
    return low
end

-- 'ok' and the cut, 'wait' or 'gone': whether pane may be read. `ask` is described in shard_scripts.py (guard).
local function admit(meta, ask)
    local registered = redis.call('HMGET', meta, 'scores', 'labels')
    if (tonumber(registered[1]) or 0) > #ask.scores or (tonumber(registered[2]) or 0) > #ask.labels then return 'wait' end
    local pane_end = (ask.pane + 1) * ask.pane_ms
    local needed = pane_end
    if ask.matured then needed = pane_end + ask.horizon_ms end
    local scores = least_clock(meta, ask.scores)
    if not scores or scores - ask.score_lateness_ms < needed then return 'wait' end
    local excluded, cut = {}, {}
    if ask.matured then
        for _, pair in ipairs(ask.excluded) do
            -- A shard that was rolled back to before the input was added does not know the clock that it began with.
            local at = tonumber(redis.call('HGET', meta, 'n:' .. pair[1]))
            if not at or at < pair[2] then return 'wait' end
            excluded[pair[1]] = true
            cut[#cut + 1] = {pair[1], at}
        end
        local labels = least_clock(meta, ask.labels, excluded)
        if not labels or labels - ask.label_lateness_ms < needed then return 'wait' end
    end
    local removed = tonumber(redis.call('HGET', meta, 'removed'))
    if removed and ask.pane <= removed then return 'gone' end
    local origin = tonumber(redis.call('HGET', meta, 'origin'))
    if ask.matured and origin and ask.pane <= origin + ask.back_panes then return 'gone' end
    return 'ok', cut
end

-- A pane that no closer can have matured: the shard's own score watermark has not reached its end.
local function later_pane(score_watermark, removed, pane_ms)
    return math.max(math.floor(score_watermark / pane_ms), removed + 1)
end

-- As what a label is counted that came after its pane had matured without waiting for it.
local function kind_after_mature(kind)
    return kind == 'labels' and 'label_after_mature' or kind
end
