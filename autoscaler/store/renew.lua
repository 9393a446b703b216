-- Keep the lease for another while, or give it up.
-- KEYS[1] lease
-- ARGV[1] the lease as this leader took it
-- ARGV[2] new time to live, ms; 0 gives it up
-- Returns 1, or 0 when it is no longer held.
if not leads(KEYS[1], ARGV[1]) then
  return 0
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
