-- Ask a host for a machine or for its end. An end that was asked for stays, whatever comes later.
-- KEYS[1] the host
-- ARGV[1] field of the machine
-- ARGV[2] sealed launch, empty for its end
-- Returns the number of the board from now on: it counts every change.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= '' then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return redis.call('HINCRBY', KEYS[1], 'n', 1)
