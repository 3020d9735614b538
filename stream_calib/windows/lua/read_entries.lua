-- Entries of a list by their numbers, which do not change when entries before them are dropped.
-- KEYS: 1 f (hash of fields)  2 l:<name>
-- ARGV: 1 field that counts the dropped entries  2 number of the first entry  3 number behind the last one, -1: to the end
-- Answer: the entries, without those that were dropped
local dropped = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
local first, behind = tonumber(ARGV[2]) - dropped, tonumber(ARGV[3])
local last = -1
if behind >= 0 then
    last = behind - dropped - 1
    if last < 0 then return {} end
end
return redis.call('LRANGE', KEYS[2], math.max(first, 0), last)
