"""`settings:` of a provider of kind gcp: what its project must already have. Nothing is created but machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from providers.bootstrap import Os, RunnerPackage

ProjectId = Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
Path = Annotated[str, StringConstraints(pattern=r"^(projects/[^/]+/(global|regions)/.+|[a-z][a-z0-9-]{0,62})$")]
LabelKey = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
LabelValue = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{0,63}$")]

RESERVED = ("autoscaler-", "goog")
ZONES = {"us-central1": "abcf", "us-east1": "bcd", "europe-west1": "bcd"}
"""Letters of the regions that have others than a, b and c (Compute Engine documentation, "Regions and zones")."""


class GcpSettings(BaseModel):
    """Credentials come from Google's own chain (Application Default Credentials), or from `credentials_file`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    project: ProjectId | None = Field(
        default=None, description="project id of the machines; left out: the project that the credentials name"
    )
    credentials_file: str | None = Field(
        default=None, pattern="^/", description="absolute path of a service account's key, one an account"
    )
    zones: Mapping[str, tuple[Name, ...]] = Field(
        default_factory=dict,
        description="region -> zones, for example {us-central1: [us-central1-a]}; a region left out: all of its",
    )
    network: Path = Field(default="default", description="VPC network: its name, or projects/P/global/networks/N")
    subnetworks: Mapping[str, Path] = Field(
        default_factory=dict,
        description="region -> subnetwork: its name, or projects/P/regions/R/subnetworks/S of a shared VPC; left "
        "out: the network chooses, which only networks in auto mode can",
    )
    external_ip: bool = Field(
        default=True, description="a public address for each machine; without one, Cloud NAT must lead out"
    )
    network_tags: tuple[Name, ...] = Field(default=(), description="network tags, for firewall rules")
    disk_type: Name = Field(default="pd-balanced", description="type of the boot disk")
    os: Os = Field(
        default="linux",
        description="what its images are: linux, or windows, whose prices are not bundled (state `price`)",
    )
    runner: RunnerPackage = Field(
        default_factory=RunnerPackage, description="the GitHub Actions runner to install"
    )
    labels: Mapping[LabelKey, LabelValue] = Field(
        default_factory=dict, description="further labels on machines and their disks"
    )

    @model_validator(mode="after")
    def _consistent(self) -> GcpSettings:
        for region, zones in self.zones.items():
            for zone in zones:
                if zone.rpartition("-")[0] != region:
                    raise ValueError(
                        f"zones: {zone} is not a zone of {region} (expected {region}-a, {region}-b, ...)"
                    )
        for label in self.labels:
            if label.startswith(RESERVED):
                raise ValueError(f"labels: {label!r} begins with {' or '.join(RESERVED)}, which are reserved")
        return self

    def zones_of(self, region: str) -> tuple[str, ...]:
        """Where machines may run in that region."""
        return self.zones.get(region) or tuple(f"{region}-{letter}" for letter in ZONES.get(region, "abc"))
