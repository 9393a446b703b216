"""`settings:` of a provider of kind aws: what its account must already have. Nothing is created but machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from providers.bootstrap import Os, RunnerPackage

SubnetId = Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-f]+$")]
GroupId = Annotated[str, StringConstraints(pattern=r"^sg-[0-9a-f]+$")]

RESERVED = ("autoscaler-", "aws:")


class AwsSettings(BaseModel):
    """Credentials come from boto3's own chain (environment, shared files, instance role), or from `profile`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subnets: Mapping[str, Mapping[str, SubnetId]] = Field(
        default_factory=dict,
        description="region -> zone -> subnet, for example {us-east-1: {us-east-1a: subnet-0abc}}; machines run "
        "only where a subnet is named, and need a way out to GitHub and to this daemon",
    )
    security_groups: Mapping[str, tuple[GroupId, ...]] = Field(
        default_factory=dict, description="region -> security groups; left out: the VPC's default group"
    )
    os: Os = Field(
        default="linux",
        description="what its images are: linux, or windows, whose prices are not bundled",
    )
    price_endpoint: str | None = Field(
        default=None,
        pattern="^https?://",
        description="where the price list API is; left out: AWS's own, or with `endpoint` none (bundled prices)",
    )
    runner: RunnerPackage = Field(
        default_factory=RunnerPackage, description="the GitHub Actions runner to install"
    )
    profile: str | None = Field(
        default=None, description="profile of the AWS shared configuration, one an account"
    )
    instance_profile: str | None = Field(
        default=None,
        description="name of an IAM instance profile for the machines; none is safest: every job has its rights",
    )
    credit: str | None = Field(
        default=None,
        description="id of the AWS credit whose spend a fund takes (`balance`); left out: all enabled",
    )
    volume_type: Literal["gp3", "gp2", "io2"] = Field(default="gp3", description="type of the root volume")
    tags: Mapping[str, str] = Field(default_factory=dict, description="further tags on machines and their volumes")

    @model_validator(mode="after")
    def _consistent(self) -> AwsSettings:
        for region, zones in self.subnets.items():
            for zone in zones:
                if not zone.startswith(region):
                    raise ValueError(
                        f"subnets: {zone} is not a zone of {region} (expected {region}a, {region}b, ...)"
                    )
        for tag in self.tags:
            if tag.startswith(RESERVED):
                raise ValueError(f"tags: {tag!r} begins with {' or '.join(RESERVED)}, which are reserved")
        return self
