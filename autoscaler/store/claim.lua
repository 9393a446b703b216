-- Let the first machine that speaks for a runner id be the only one.
-- KEYS[1] the machine of this runner
-- ARGV[1] nonce of the machine that speaks
-- ARGV[2] how long it is remembered after it last spoke, ms
-- Returns 1 when it is that machine, 0 when another one is.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
if not holder or redis.call('PTTL', KEYS[1]) < ARGV[2] / 2 then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
