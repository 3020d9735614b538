-- A member leaves its group: its partitions are free at once. Safe to repeat.
--
-- KEYS[1]    log:writer:<instance>
-- KEYS[2..]  for each topic: log:group:<group>:<topic>, log:members:<group>:<topic>
-- ARGV[1]    member (name)
-- ARGV[2]    instance: nothing is done where another one has taken the name

local member, instance = ARGV[1], ARGV[2]

for k = 2, #KEYS, 2 do
  local group_key, members_key = KEYS[k], KEYS[k + 1]
  if redis.call('HGET', group_key, 'instance:' .. member) == instance then
    local flat = redis.call('HGETALL', group_key)
    for i = 1, #flat, 2 do
      if flat[i + 1] == member and string.sub(flat[i], 1, 6) == 'owner:' then
        redis.call('HDEL', group_key, flat[i])
      end
    end
    redis.call('HDEL', group_key, 'instance:' .. member)
    redis.call('ZREM', members_key, member)
  end
end
redis.call('DEL', KEYS[1])
return 'ok'
