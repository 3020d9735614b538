-- Appends one batch of records and moves committed positions, as one or not at all.
--
-- Everything is read and checked first; after that come only writes that cannot fail: entry ids are made from the tails read
-- here, key types were checked by those reads, and a server that is out of memory refuses the first write.
--
-- KEYS       as numbered in the plan; KEYS[1] is log:writer:<instance>
-- ARGV[1]    the plan, msgpack: {sequence, life, topics, commits, streams}
--              sequence  number of this append, rising by one for each append of the writer
--              life      of the writer key, in ms
--              topics    [[topic key, id, partitions], ...] as the writer knows them
--              commits   [[group key, member, beat, [[partition, token, expected or '', new], ...]], ...]
--              streams   [[stream key, topic key, partition, number of records], ...]
-- ARGV[2..]  the packed records, in the order of the streams
--
-- Reply: 'ok'          done, now or by an earlier run of the same append
--        'topics'      a topic is not as the writer knows it
--        'fenced'      a partition's lease is not this member's
--        'moved'       a committed position is not the expected one, or the server has lost what it had told the member
--        'superseded'  a later append of the writer is done already
--        'damaged'     a stream holds entries beyond the topic's end

local plan = cmsgpack.unpack(ARGV[1])

local last = tonumber(redis.call('HGET', KEYS[1], 'sequence') or '0')
if last == plan.sequence then
  return 'ok'
elseif last > plan.sequence then
  return 'superseded'
end

for _, topic in ipairs(plan.topics) do
  local found = redis.call('HMGET', KEYS[topic[1]], 'id', 'partitions')
  if found[1] ~= topic[2] or tonumber(found[2]) ~= topic[3] then
    return 'topics'
  end
end

for _, commit in ipairs(plan.commits) do
  local group_key, member, beat = KEYS[commit[1]], commit[2], commit[3]
  for _, position in ipairs(commit[4]) do
    local p, token, expected = position[1], position[2], position[3]
    local found = redis.call('HMGET', group_key, 'owner:' .. p, 'token:' .. p, 'position:' .. p)
    if found[1] ~= member or found[2] ~= token then
      return 'fenced'
    end
    if (found[3] or '') ~= expected then
      return 'moved'
    end
  end
  if tonumber(redis.call('HGET', KEYS[1], 'beat') or '0') < beat then
    return 'moved'
  end
end

local ends = {}
for s, stream in ipairs(plan.streams) do
  ends[s] = tonumber(redis.call('HGET', KEYS[stream[2]], 'end:' .. stream[3]) or '0')
  local beyond = redis.call('XRANGE', KEYS[stream[1]], string.format('%.0f-0', ends[s] + 1), '+', 'COUNT', 1)
  if #beyond > 0 then
    return 'damaged'
  end
end

redis.call('HSET', KEYS[1], 'sequence', plan.sequence)
redis.call('PEXPIRE', KEYS[1], plan.life)

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local head = '\146' .. cmsgpack.pack(now)  -- an array of two, the first of which is the append time

local argument = 1
local xadd, format = redis.call, string.format
for s, stream in ipairs(plan.streams) do
  local key, offset = KEYS[stream[1]], ends[s]
  for _ = 1, stream[4] do
    argument = argument + 1
    offset = offset + 1
    xadd('XADD', key, format('%.0f-0', offset), 'r', head .. ARGV[argument])
  end
  redis.call('HSET', KEYS[stream[2]], 'end:' .. stream[3], format('%.0f', offset))
end

for _, commit in ipairs(plan.commits) do
  for _, position in ipairs(commit[4]) do
    redis.call('HSET', KEYS[commit[1]], 'position:' .. position[1], position[4])
  end
end
return 'ok'
