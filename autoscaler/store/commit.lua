-- Write one tick: records, cursor, journal and what was set aside. All of it or, with a stale fence, nothing.
-- Sent again it changes nothing: the head names the last commit of a fence.
-- KEYS[1] lease
-- KEYS[2] head
-- KEYS[3] inbox stream
-- KEYS[4] journal stream
-- KEYS[5] rejects stream
-- KEYS[6...] hashes of the record kinds
-- ARGV[1] the lease as this leader took it
-- ARGV[2] n of its fence
-- ARGV[3] number of this commit under the fence, counting up
-- ARGV[4] cursor: last inbox id that is consumed now
-- ARGV[5] length at which the journal is cut
-- ARGV[6] length at which the rejects are cut
-- ARGV[7] count of journal entries
-- ARGV[8] count of rejects
-- ARGV[9...] journal entries (JSON), then rejects (id, event, why), then records (index into KEYS, key, JSON; an
-- empty JSON deletes)
-- Returns 1 when the tick is stored, 0 when the fence is stale.
local head = redis.call('HMGET', KEYS[2], 'n', 'seq')
if head[1] == ARGV[2] and tonumber(head[2]) >= tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[2], 'n', ARGV[2]) -- a write, so that WAIT has something to wait for
  return 1
end
if not leads(KEYS[1], ARGV[1]) then
  return 0
end
local at = 9
for _ = 1, tonumber(ARGV[7]) do
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[5], '*', 'j', ARGV[at])
  at = at + 1
end
for _ = 1, tonumber(ARGV[8]) do
  redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[6], '*', 'id', ARGV[at], 'e', ARGV[at + 1], 'why', ARGV[at + 2])
  at = at + 3
end
while at < #ARGV do
  local hash = KEYS[tonumber(ARGV[at])]
  if ARGV[at + 2] == '' then
    redis.call('HDEL', hash, ARGV[at + 1])
  else
    redis.call('HSET', hash, ARGV[at + 1], ARGV[at + 2])
  end
  at = at + 3
end
local run = string.match(ARGV[1], '^%x+')
redis.call('HSET', KEYS[2], 'cursor', ARGV[4], 'n', ARGV[2], 'seq', ARGV[3], 'run', run)
redis.call('XTRIM', KEYS[3], 'MINID', ARGV[4])
redis.call('XDEL', KEYS[3], ARGV[4])
return 1
