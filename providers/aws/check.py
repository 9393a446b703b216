"""`provider check` for an AWS account: permissions, subnets and images, tried without launching anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from providers.aws.client import Ec2
from providers.aws.errors import code_of
from providers.aws.request import Root, run_instances
from providers.aws.settings import AwsSettings
from providers.base import LaunchSpec, ProviderError
from scheduling.model import Offer, Purchase

DRY_RUN_PASSED = "DryRunOperation"


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One thing that was tried. `detail` says what to do where `ok` is False."""

    what: str
    ok: bool
    detail: str = ""


async def check(
    ec2: Ec2, settings: AwsSettings, offers: Sequence[Offer], images: Mapping[str, str], fleet: str
) -> list[CheckLine]:
    """One offer a zone, on demand and spot, by DryRun; the lists of the inventory; the image of each region.

    `images` are AMI ids by region; only offers of the image's architecture are tried.
    """
    lines = []
    for region in dict.fromkeys(offer.region for offer in offers):
        lines.append(await _try(f"{region}: list machines", ec2, region, "describe_instances", MaxResults=5))
        lines.append(await _try(f"{region}: list volumes", ec2, region, "describe_volumes", MaxResults=5))
        if (image := images.get(region)) is None:
            lines.append(CheckLine(f"{region}: image", False, "the policy's images name none for this region"))
            continue
        here = [offer for offer in offers if offer.region == region]
        lines += await _check_image(ec2, settings, here, image, fleet)
    return lines


async def _check_image(
    ec2: Ec2, settings: AwsSettings, offers: Sequence[Offer], image: str, fleet: str
) -> list[CheckLine]:
    region, what = offers[0].region, f"{offers[0].region}: image {image}"
    try:
        found = (await ec2.ask(region, "describe_images", ImageIds=[image]))["Images"]
    except ProviderError as error:
        return [CheckLine(what, False, str(error))]
    if not found:
        return [CheckLine(what, False, "does not exist or is not shared with this account")]
    arch = {"x86_64": "x64"}.get(found[0].get("Architecture"), found[0].get("Architecture"))
    lines = [CheckLine(what, True, arch)]
    tried: set[tuple[str, Purchase]] = set()
    for offer in sorted(offers, key=lambda offer: offer.hardware.cpus):
        if offer.hardware.arch == arch and (offer.zone, offer.purchase) not in tried:
            tried.add((offer.zone, offer.purchase))
            lines.append(await _dry_run(ec2, settings, offer, image, Root.of(found[0]), fleet))
    return lines


async def _dry_run(ec2: Ec2, settings: AwsSettings, offer: Offer, image: str, root: Root, fleet: str) -> CheckLine:
    spec = LaunchSpec(fleet, "r" + "0" * 20, "check", offer, 0, "check", 0, image, 0, "{}", 60_000)
    what = f"{offer.region}: launch {offer.instance_type} {offer.purchase} in {offer.zone}"
    try:
        request = run_instances(spec, settings, root)
        await ec2.ask(offer.region, "run_instances", **{**request, "DryRun": True})
    except ProviderError as error:
        passed = code_of(error.__cause__) == DRY_RUN_PASSED
        return CheckLine(what, passed, "" if passed else str(error))
    return CheckLine(what, False, "EC2 ignored DryRun")


async def _try(what: str, ec2: Ec2, region: str, operation: str, **parameters: object) -> CheckLine:
    try:
        await ec2.ask(region, operation, **parameters)
    except ProviderError as error:
        return CheckLine(what, False, str(error))
    return CheckLine(what, True)
