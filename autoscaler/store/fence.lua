-- Put before each script that asks who leads. A lease reads `run id/n/holder`; its fence is (run id, n).
local function server_run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end
-- True while the lease stands as this leader took it and the server has not restarted or failed over since.
local function leads(lease_key, lease)
  return redis.call('GET', lease_key) == lease and string.match(lease, '^%x+') == server_run_id()
end
