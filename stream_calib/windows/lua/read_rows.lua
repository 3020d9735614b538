-- Chunks of a pane's rows. (after clocks) Only reads.
-- KEYS: 1 m (marks)  2 p<pane> (chunks of rows)
-- ARGV: 1 msgpack guard  2 first chunk  3 last chunk
-- Answer: status, cut (msgpack), number of chunks, chunks
local status, cut = admit(KEYS[1], cmsgpack.unpack(ARGV[1]))
if status ~= 'ok' then return {status} end
return {status, cmsgpack.pack(cut), redis.call('LLEN', KEYS[2]), redis.call('LRANGE', KEYS[2], ARGV[2], ARGV[3])}
