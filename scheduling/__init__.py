"""The pure core: what is wanted, where it should run, and who pays.

Belongs here: records, the world and its one writer `evolve`, the compiled policy, matching, the ledger,
placement, reaping and `plan`. Everything is synchronous and takes `now_ms` as an argument; the same
calls serve the live daemon and a backtest.

Never here: I/O, clocks, randomness, asyncio, sockets, logging, or any import outside the standard library.
Times are Unix milliseconds in UTC (`_ms`), durations are milliseconds (`_ms`), money is integer
micro-dollars (`MicroUSD`).
"""
