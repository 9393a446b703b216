"""`settings:` of a provider of kind ssh: the inventory of its hosts, and how they are reached."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from providers.bootstrap import RunnerPackage

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")]
Device = Annotated[str, StringConstraints(pattern=r"^/dev/[A-Za-z0-9_./-]+$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", to_lower=True)]
HostKey = Annotated[
    str,
    StringConstraints(pattern=r"^$|^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/=]+( .*)?$"),
]


def _absolute(path: Path) -> Path:
    if not path.expanduser().is_absolute():
        raise ValueError(f"expected an absolute path or one beginning with ~/, found {str(path)!r}")
    return path.expanduser()


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GpuSettings(Part):
    """GPUs of one slot, and the device files that each slot gets."""

    vendor: str = Field(min_length=1)
    model: str = Field(min_length=1)
    count: int = Field(default=1, ge=1, le=16)
    devices: tuple[tuple[Device, ...], ...] = Field(description="one list of device files a slot")


class HostSettings(Part):
    """One donated host. Hardware is that of one slot."""

    name: Name = Field(description="how offers and references call it; never give it to another host")
    address: str = Field(default="", description="host name or IP address; left out: the name")
    port: int = Field(default=22, ge=1, le=65535)
    user: str = Field(default="autoscaler", pattern=r"^[a-z_][a-z0-9_-]{0,31}$")
    host_key: HostKey = Field(
        default="",
        description="public host key, as `ssh-keyscan` prints it without the name; `reach: ssh` needs it",
    )
    slots: int = Field(default=1, ge=1, le=4096, description="machines at the same time")
    cpus: int = Field(ge=1, le=1024)
    memory_gib: int = Field(ge=1)
    disk_gib: int = Field(default=0, ge=0, description="0: runner types may ask for any")
    arch: Literal["x64", "arm64"] = "x64"
    gpu: GpuSettings | None = None

    @model_validator(mode="after")
    def _a_device_list_a_slot(self) -> HostSettings:
        if self.gpu and len(self.gpu.devices) != self.slots:
            raise ValueError(
                f"host {self.name}: gpu.devices has {len(self.gpu.devices)} lists for {self.slots} slots; "
                "expected one list of device files a slot"
            )
        return self


class SshSettings(Part):
    """The same key and launcher for all hosts; hosts that differ are another provider."""

    reach: Literal["ssh", "outbound"] = Field(
        default="ssh", description="who calls whom: we the hosts over SSH, or the hosts us over HTTPS"
    )
    sponsors: dict[Name, Sha256] = Field(
        default={}, description="who may join and pause hosts that call us: SHA-256 of each one's join token"
    )
    hosts: tuple[HostSettings, ...] = Field(default=(), description="the inventory")
    key_file: AbsolutePath | None = Field(
        default=None, description="absolute path of the private key, without a passphrase"
    )
    launcher: Literal["systemd", "bubblewrap"] = Field(
        default="systemd", description="what a machine is there: a transient unit, or a sandbox without systemd"
    )
    folder: AbsolutePath = Field(
        default=Path("/var/lib/autoscaler"), description="where the hosts keep leases and machines"
    )
    runner: RunnerPackage = Field(
        default_factory=RunnerPackage, description="the GitHub Actions runner to install"
    )

    @model_validator(mode="after")
    def _names_are_unique(self) -> SshSettings:
        names = [host.name for host in self.hosts]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"hosts: two are called {twice[0]!r}")
        return self

    @model_validator(mode="after")
    def _what_the_reach_needs(self) -> SshSettings:
        if self.reach == "ssh":
            if self.sponsors:
                raise ValueError("sponsors: join tokens are for `reach: outbound`; here the daemon logs in")
            for number, host in enumerate(self.hosts):
                if not host.host_key:
                    raise ValueError(f"hosts.{number}.host_key: expected the public host key of {host.name}")
            return self
        if self.key_file:
            raise ValueError("key_file: hosts of `reach: outbound` call us; remove it")
        for number, host in enumerate(self.hosts):
            if useless := sorted({"address", "port", "user", "host_key"} & host.model_fields_set):
                raise ValueError(f"hosts.{number}.{useless[0]}: hosts of `reach: outbound` call us; remove it")
        if len(set(self.sponsors.values())) < len(self.sponsors):
            raise ValueError("sponsors: two have the same token; expected one each")
        return self
