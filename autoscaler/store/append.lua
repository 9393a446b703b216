-- Append one batch of events to the inbox, once however often it is sent.
-- KEYS[1] inbox stream
-- KEYS[2] number of the appender's last batch
-- ARGV[1] number of this batch, counting up for each appender
-- ARGV[2] how long that number is remembered, ms
-- ARGV[3] length of the inbox from which bulk events are refused
-- ARGV[4] count of events that are never refused; they come first
-- ARGV[5...] events, JSON
-- Returns 1 when all is stored, 0 when the bulk events were refused.
local last = redis.call('GET', KEYS[2])
if last and tonumber(last) >= tonumber(ARGV[1]) then
  redis.call('PEXPIRE', KEYS[2], ARGV[2]) -- a write, so that WAIT has something to wait for
  return 1
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
local urgent = 4 + tonumber(ARGV[4])
for i = 5, urgent do
  redis.call('XADD', KEYS[1], '*', 'e', ARGV[i])
end
if #ARGV > urgent and redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
for i = urgent + 1, #ARGV do
  redis.call('XADD', KEYS[1], '*', 'e', ARGV[i])
end
return 1
