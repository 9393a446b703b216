"""One launch as EC2's RunInstances takes it. Pure: one spec and one policy give the same bytes on every replay."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any, NamedTuple

from providers.aws.settings import AwsSettings
from providers.base import LaunchSpec, Refused
from providers.bootstrap import linux_user_data, program, windows_launch
from scheduling.model import Purchase

USER_DATA_BYTES = 16_384
METADATA_SERVICE = "169.254.169.254/32"
TAGGED = ("instance", "volume", "network-interface")


class Root(NamedTuple):
    """An image's root disk: its device name (`/dev/xvda`; another name would add a disk) and its size."""

    device: str
    gib: int

    @classmethod
    def of(cls, image: Mapping[str, Any]) -> Root:
        """From one entry of DescribeImages."""
        disks = {entry["DeviceName"]: entry.get("Ebs", {}) for entry in image.get("BlockDeviceMappings", ())}
        device = image["RootDeviceName"]
        return cls(device, disks.get(device, {}).get("VolumeSize", 0))


def run_instances(spec: LaunchSpec, settings: AwsSettings, root: Root) -> dict[str, Any]:
    """Parameters of RunInstances. Refused when settings lack a part.

    EC2's client token is zonal, so the subnet pins the zone and the placement makes EC2 check that it does.
    """
    offer = spec.offer
    subnet = settings.subnets.get(offer.region, {}).get(offer.zone)
    if subnet is None:
        raise Refused(
            f"settings.subnets names no subnet in {offer.zone} ({offer.region}) for provider {offer.provider}"
        )
    size = {"VolumeSize": gib} if (gib := max(spec.disk_gib, root.gib)) else {}
    disk = {"VolumeType": settings.volume_type, "DeleteOnTermination": True, **size}
    request: dict[str, Any] = {
        "ClientToken": spec.runner_id,
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": spec.image,
        "InstanceType": offer.instance_type,
        "SubnetId": subnet,
        "Placement": {"AvailabilityZone": offer.zone},
        "UserData": _user_data(spec, settings),
        "BlockDeviceMappings": [{"DeviceName": root.device, "Ebs": disk}],
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "TagSpecifications": [{"ResourceType": kind, "Tags": _tags(spec, settings.tags)} for kind in TAGGED],
    }
    if groups := settings.security_groups.get(offer.region):
        request["SecurityGroupIds"] = list(groups)
    if settings.instance_profile:
        request["IamInstanceProfile"] = {"Name": settings.instance_profile}
    if offer.purchase is Purchase.SPOT:
        one_time = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        request["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": one_time}
    return request


def _package(spec: LaunchSpec, settings: AwsSettings) -> dict[str, Any]:
    arch, os = spec.offer.hardware.arch, settings.os
    if spec.offer.hardware.os != os:
        raise Refused(f"this launch is for {spec.offer.hardware.os}, and settings.os says {os} now")
    package = settings.runner.for_arch(arch, os)
    if package is None:
        key = f"win-{arch}" if os == "windows" else arch
        raise Refused(f"settings.runner.sha256 has no entry for {key}, which {spec.offer.instance_type} needs")
    return package


def _user_data(spec: LaunchSpec, settings: AwsSettings) -> bytes:
    """Packed, as cloud-init takes it too: EC2 counts what is sent."""
    package = _package(spec, settings)
    if settings.os == "windows":
        launch = windows_launch(spec.boot, package, spec.lifetime_ms, [METADATA_SERVICE])
        program_text = program("windows.ps1").decode()
        return _fitting(
            spec, f"<powershell>\n{program_text}\n</powershell>\n<autoscaler>{launch}</autoscaler>".encode()
        )
    notice = "ec2" if spec.offer.purchase is Purchase.SPOT else ""
    text = linux_user_data(spec.boot, package, spec.lifetime_ms, [METADATA_SERVICE], notice)
    return _fitting(spec, gzip.compress(text.encode(), mtime=0))


def _fitting(spec: LaunchSpec, packed: bytes) -> bytes:
    if len(packed) > USER_DATA_BYTES:
        raise Refused(
            f"user data of runner type {spec.runner_type} is {len(packed)} bytes and EC2 takes {USER_DATA_BYTES}: "
            "shorten the type's access lists or the hooks of settings.runner"
        )
    return packed


def _tags(spec: LaunchSpec, more: Mapping[str, str]) -> list[dict[str, str]]:
    tags = {**more, "Name": spec.name, **spec.tags}
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
