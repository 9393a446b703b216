-- Take the lease, or take it again under a new fence.
-- A lease from an earlier run of the server is void: nothing can commit under its fence any more.
-- KEYS[1] lease
-- KEYS[2] counter of fences
-- ARGV[1] holder
-- ARGV[2] time to live, ms
-- Returns {run id of the server, n}, or false while somebody else holds the lease.
local run = server_run_id()
local lease = redis.call('GET', KEYS[1])
if lease then
  local of, holder = string.match(lease, '^(%x+)/%d+/(.*)$')
  if of == run and holder ~= ARGV[1] then
    return false
  end
end
local n = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], run .. '/' .. n .. '/' .. ARGV[1], 'PX', ARGV[2])
return {run, n}
