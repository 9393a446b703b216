"""`settings:` of a provider of kind azure: what its subscription must already have. Only machines are created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from providers.bootstrap import RunnerPackage

Guid = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]
Network = "/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft.Network"
SubnetId = Annotated[str, StringConstraints(pattern=f"^{Network}/virtualNetworks/[^/]+/subnets/[^/]+$")]
GroupId = Annotated[str, StringConstraints(pattern=f"^{Network}/networkSecurityGroups/[^/]+$")]
TagName = Annotated[str, StringConstraints(pattern=r"^[^<>%&\\?/]{1,512}$")]
TagValue = Annotated[str, StringConstraints(max_length=256)]

RESERVED = ("autoscaler-", "microsoft", "azure", "windows")


class AzureSettings(BaseModel):
    """Credentials come from Azure's own chain (DefaultAzureCredential), or from an app registration's secret."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subscription: Guid | None = Field(default=None, description="subscription id; machines run only with one")
    resource_group: str | None = Field(
        default=None,
        pattern=r"^[\w().-]{1,89}[\w()-]$",
        description="resource group of the machines, best with nothing else in it; machines run only with one",
    )
    subnets: Mapping[str, SubnetId] = Field(
        default_factory=dict,
        description="region -> resource id of a subnet there; machines run only where one is named",
    )
    security_groups: Mapping[str, GroupId] = Field(
        default_factory=dict,
        description="region -> resource id of a network security group; left out: the subnet's",
    )
    zones: Mapping[str, tuple[Literal["1", "2", "3"], ...]] = Field(
        default_factory=dict,
        description="region -> availability zones, for example {eastus: ['1', '2']}; left out: Azure chooses",
    )
    public_ip: bool = Field(
        default=True, description="a public address for each machine; without one, a NAT gateway must lead out"
    )
    disk_type: Literal["Standard_LRS", "StandardSSD_LRS", "Premium_LRS"] = Field(
        default="StandardSSD_LRS", description="type of the OS disk"
    )
    price_endpoint: str | None = Field(
        default=None,
        pattern="^https?://",
        description="where the retail prices API is; left out: Azure's own, or with `endpoint` none (bundled)",
    )
    runner: RunnerPackage = Field(
        default_factory=RunnerPackage, description="the GitHub Actions runner to install"
    )
    tags: Mapping[TagName, TagValue] = Field(
        default_factory=dict, description="further tags on machines and what belongs to them"
    )
    tenant: Guid | None = Field(default=None, description="tenant of the app registration")
    client: Guid | None = Field(
        default=None, description="client id of the app registration, or of a user-assigned managed identity"
    )
    client_secret_file: str | None = Field(
        default=None, pattern="^/", description="absolute path of a file with the app registration's secret"
    )

    @model_validator(mode="after")
    def _consistent(self) -> AzureSettings:
        for tag in self.tags:
            if tag.casefold().startswith(RESERVED):
                raise ValueError(f"tags: {tag!r} begins with {' or '.join(RESERVED)}, which are reserved")
        if self.client_secret_file and not (self.tenant and self.client):
            raise ValueError("client_secret_file needs tenant and client beside it")
        return self

    def zones_of(self, region: str) -> tuple[str, ...]:
        """Names of the places where machines may run: `eastus-1` for a zone, `eastus` where Azure chooses."""
        if region not in self.subnets or not self.subscription or not self.resource_group:
            return ()
        return tuple(f"{region}-{zone}" for zone in self.zones.get(region, ())) or (region,)
