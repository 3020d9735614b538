-- One heartbeat of one member: keeps its session, gives up what is too much, takes what is free.
--
-- Each topic is shared on its own: with m live members in the order of their names, the first (partitions mod m) hold one
-- partition more than the others. A partition is free when it has no owner or its owner's session has ended. Each taking
-- gives a new token; the append script takes no commit under an older one.
--
-- KEYS[1]       log:writer:<instance>
-- KEYS[2..]     for each topic: log:topic:<topic>, log:group:<group>:<topic>, log:members:<group>:<topic>, log:groups:<topic>
-- ARGV[1]       group
-- ARGV[2]       member (name)
-- ARGV[3]       instance: another one of the same name is replaced when it joins
-- ARGV[4]       session timeout in ms
-- ARGV[5]       life of the writer key in ms
-- ARGV[6]       '1' when the instance joins (its first heartbeat)
-- ARGV[7]       the last beat that the member was told: where the server knows less, it has lost writes, and counts no
--               further before the member has heard of it (else a repeat of this call would hide the loss)
-- ARGV[8..]     for each topic: the id that the member knows, '' before it knows one
--
-- Reply: {'missing', topic index}, {'recreated', topic index, id now}, {'replaced', topic index}, or
-- {'ok', beat before, beat now, then for each topic {id, first_partitions, partition, token, committed or '', end, ...}}.
-- Safe to repeat: a repeat is one more heartbeat.

local group_name, member, instance = ARGV[1], ARGV[2], ARGV[3]
local joins = ARGV[6] == '1'
local topic_count = (#KEYS - 1) / 4

local function fields(key)
  local flat, read = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    read[flat[i]] = flat[i + 1]
  end
  return read
end

local topics, groups = {}, {}
for t = 1, topic_count do
  local topic = fields(KEYS[4 * t - 2])
  local group = fields(KEYS[4 * t - 1])
  if not topic.id then
    return {'missing', t}
  end
  local known = ARGV[7 + t]
  if (known ~= '' and known ~= topic.id) or (group.id and group.id ~= topic.id) then
    return {'recreated', t, topic.id}
  end
  local registered = group['instance:' .. member]
  if registered and registered ~= instance and not joins then
    return {'replaced', t}
  end
  topics[t], groups[t] = topic, group
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local beat_before = tonumber(redis.call('HGET', KEYS[1], 'beat') or '0')
local beat = beat_before
if beat_before >= tonumber(ARGV[7]) then
  beat = redis.call('HINCRBY', KEYS[1], 'beat', 1)
end
redis.call('PEXPIRE', KEYS[1], ARGV[5])
local reply = {'ok', beat_before, beat}

for t = 1, topic_count do
  local topic, group = topics[t], groups[t]
  local group_key, members_key = KEYS[4 * t - 1], KEYS[4 * t]
  local partitions = tonumber(topic.partitions)

  local function take(partition)
    local token = redis.call('HINCRBY', group_key, 'tokens', 1)
    redis.call('HSET', group_key, 'owner:' .. partition, member, 'token:' .. partition, token)
    group['token:' .. partition] = tostring(token)
  end

  if not group.id then
    redis.call('HSET', group_key, 'id', topic.id, 'first_partitions', partitions)
    redis.call('SADD', KEYS[4 * t + 1], group_name)
    group.first_partitions = topic.partitions
  end
  if group['instance:' .. member] ~= instance then
    redis.call('HSET', group_key, 'instance:' .. member, instance)
  end
  redis.call('ZADD', members_key, now + tonumber(ARGV[4]), member)
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', members_key, '-inf', '(' .. now)) do
    redis.call('HDEL', group_key, 'instance:' .. dead)
    redis.call('ZREM', members_key, dead)
  end

  local names = redis.call('ZRANGE', members_key, 0, -1)
  table.sort(names)
  local live, rank = {}, 0
  for i, name in ipairs(names) do
    live[name] = true
    if name == member then
      rank = i
    end
  end
  local quota = math.floor(partitions / #names)
  if rank <= partitions % #names then
    quota = quota + 1
  end

  local mine, free = {}, {}
  for p = 0, partitions - 1 do
    local owner = group['owner:' .. p]
    if owner == member then
      mine[#mine + 1] = p
    elseif not owner or not live[owner] then
      free[#free + 1] = p
    end
  end
  while #mine > quota do
    redis.call('HDEL', group_key, 'owner:' .. mine[#mine])
    mine[#mine] = nil
  end
  if joins then
    for _, p in ipairs(mine) do
      take(p)
    end
  end
  for _, p in ipairs(free) do
    if #mine >= quota then
      break
    end
    take(p)
    mine[#mine + 1] = p
  end

  local assigned = {topic.id, group.first_partitions}
  for _, p in ipairs(mine) do
    assigned[#assigned + 1] = p
    assigned[#assigned + 1] = group['token:' .. p]
    assigned[#assigned + 1] = group['position:' .. p] or ''
    assigned[#assigned + 1] = topic['end:' .. p] or '0'
  end
  reply[#reply + 1] = assigned
end
return reply
