"""Donated hosts over SSH: a slot of a host is a machine.

`settings` is the inventory, `host` the program that runs there, `client` carries calls to it over one connection a
host, `request` writes one launch, and `provider` is the adapter.
"""

from providers.ssh.provider import KIND, Ssh
from providers.ssh.settings import SshSettings

__all__ = ["KIND", "Ssh", "SshSettings"]
