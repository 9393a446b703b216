-- Take the lease, or take it again under a new fence.
-- A lease from an earlier run of the server is void: nothing can commit under its fence any more.
-- KEYS[1] lease
-- KEYS[2] counter of fences
-- KEYS[3] head
-- ARGV[1] holder
-- ARGV[2] time to live, ms
-- Returns {run id of the server, n, past}; past is 'empty' before the first commit, 'whole' when no commit can be
-- missing, else 'lost'. While somebody else holds the lease: 1 if anything was ever committed, else 0.
local run = server_run_id()
local lease = redis.call('GET', KEYS[1])
if lease then
  local of, holder = string.match(lease, '^(%x+)/%d+/(.*)$')
  if of == run and holder ~= ARGV[1] then
    return redis.call('EXISTS', KEYS[3])
  end
end
-- Another run of the server has all commits only if it is the same server, back from its append-only file. What
-- was a replica (it knows the history of its master) or came back from a snapshot may lack the last of them.
local past = 'whole'
local committed_in = redis.call('HGET', KEYS[3], 'run')
if redis.call('EXISTS', KEYS[3]) == 0 then
  past = 'empty'
elseif committed_in and committed_in ~= run then
  local appends = string.find(redis.call('INFO', 'persistence'), 'aof_enabled:1')
  local own_history = string.find(redis.call('INFO', 'replication'), 'master_replid2:0+%s')
  if not (appends and own_history) then
    past = 'lost'
  end
end
local n = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], run .. '/' .. n .. '/' .. ARGV[1], 'PX', ARGV[2])
return {run, n, past}
