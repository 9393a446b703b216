"""The simulated provider: a cloud that sells what the hardware asks and fails as often as it is told to.

Shipped, not a test double: the demo, the tests and the backtest run on it. `settings` says what it sells and how
it misbehaves, `cloud` is the account itself (machines, boots, refusals, lost answers; all drawn from one seed),
`remote` reaches such an account over HTTP when the policy names an `endpoint`, and `provider` is the adapter.
"""

from providers.sim.cloud import Cloud, Machine, SimCloud
from providers.sim.provider import KIND, SimProvider
from providers.sim.settings import Fault, Faults, Settings

__all__ = ["KIND", "Cloud", "Fault", "Faults", "Machine", "Settings", "SimCloud", "SimProvider"]
