"""Whether an account is fit for a fleet, before the fleet uses it: `provider check` and its canary.

Belongs here: what is tried of a provider through its adapter, and how it is told. Never here: what a vendor's API
is asked (`providers`), and anything that the daemon needs.
"""
