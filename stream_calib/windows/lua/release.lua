-- Gives a lease up if the owner holds it.
-- KEYS: 1 the lease (string: owner)   ARGV: 1 owner
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
