-- Takes or renews a lease.
-- KEYS: 1 f (hash of fields; `token:<name>` counts the changes of owner)  2 the lease (string: owner; expires)
-- ARGV: 1 name  2 owner  3 time to live in ms
-- Answer: the owner's fencing token, or nil while another owner holds it
local owner = redis.call('GET', KEYS[2])
if owner and owner ~= ARGV[2] then return nil end
local field = 'token:' .. ARGV[1]
local token = redis.call('HGET', KEYS[1], field)
if not owner or not token then token = tostring(redis.call('HINCRBY', KEYS[1], field, 1)) end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return token
