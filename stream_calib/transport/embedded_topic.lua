-- Creates a topic, or lets it grow. Reply: number of partitions that the topic has now.
--
-- KEYS[1]  log:topic:<topic>
-- ARGV[1]  id for a new topic
-- ARGV[2]  partitions wanted
-- ARGV[3]  '1': an existing topic with fewer partitions grows; a missing one is not created (reply 0)

local wanted = tonumber(ARGV[2])
local grow = ARGV[3] == '1'
local partitions = tonumber(redis.call('HGET', KEYS[1], 'partitions'))

if not partitions then
  if grow then
    return 0
  end
  redis.call('HSET', KEYS[1], 'id', ARGV[1], 'partitions', wanted)
  return wanted
end
if grow and partitions < wanted then
  redis.call('HSET', KEYS[1], 'partitions', wanted)
  return wanted
end
return partitions
