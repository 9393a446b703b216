-- Lay a sealed JIT config out for its machine, if the one who made it still leads.
-- KEYS[1] lease
-- KEYS[2] the config of this runner
-- ARGV[1] the lease as this leader took it
-- ARGV[2] sealed config
-- ARGV[3] its life, ms
-- Returns 1, or 0 when the fence is stale.
if not leads(KEYS[1], ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1
