-- Keep what a host said, and strike from the board what it has done. All of it or nothing.
-- KEYS[1] the host
-- KEYS[2] that it was heard
-- ARGV[1] how long that counts, ms
-- ARGV[2] now, ms
-- ARGV[3] number of the board that it acted upon
-- ARGV[4] its report, JSON
-- ARGV[5...] fields of machines that it has, then `-`, then fields of machines that it has ended
redis.call('SET', KEYS[2], '1', 'PX', ARGV[1])
redis.call('HSET', KEYS[1], 'reported_ms', ARGV[2], 'acted', ARGV[3], 'report', ARGV[4])
local ended = false
for i = 5, #ARGV do
  if ARGV[i] == '-' then
    ended = true
  elseif (redis.call('HGET', KEYS[1], ARGV[i]) == '') == ended then
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return 1
