"""`provider check` for an AWS account: permissions, subnets, images and quota, without launching anything.

EC2's DryRun of a launch tests permission, image, subnet and security groups together; it says nothing of quotas,
which another service tells (Service Quotas; codes as listed by `aws service-quotas list-service-quotas`).
"""

from __future__ import annotations

from collections.abc import Sequence

from providers import checking
from providers.aws.client import Service
from providers.aws.errors import code_of
from providers.aws.request import Root, run_instances
from providers.aws.settings import AwsSettings
from providers.base import CheckLine, LaunchSpec, ProviderError
from scheduling.model import Purchase, UnixMs

DRY_RUN_PASSED = "DryRunOperation"
ARCHITECTURES = {"x86_64": "x64"}
STANDARD = "acdhimrtz"  # families that share one quota of vCPUs
QUOTAS = {Purchase.ON_DEMAND: "L-1216C47A", Purchase.SPOT: "L-34B43A08"}


async def check(
    ec2: Service, settings: AwsSettings, samples: Sequence[LaunchSpec], now_ms: UnixMs
) -> list[CheckLine]:
    """Lists of the inventory, each image, a dry run of each sample, and the quotas that they count in."""
    lines: list[CheckLine] = []
    for region in dict.fromkeys(sample.offer.region for sample in samples):
        here = [sample for sample in samples if sample.offer.region == region]
        lines += await _lists(ec2, region, now_ms)
        roots: dict[str, Root] = {}
        for image in dict.fromkeys(sample.image for sample in here):
            lines.append(await _image(ec2, region, image, here, roots))
        lines += [await _dry_run(ec2, settings, each, roots[each.image]) for each in here if each.image in roots]
        lines += [
            await _quota(ec2, region, purchase) for purchase in dict.fromkeys(s.offer.purchase for s in here)
        ]
    return lines


async def _lists(ec2: Service, region: str, now_ms: UnixMs) -> list[CheckLine]:
    what = f"{region}: list machines"
    try:
        answer = await ec2.ask(region, "describe_instances", MaxResults=5)
    except ProviderError as error:
        return [checking.failed(what, error)]
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    volumes = ec2.ask(region, "describe_volumes", MaxResults=5)
    return [
        CheckLine(what, True),
        await checking.tried(f"{region}: list volumes", volumes),
        checking.clock(date, now_ms),
    ]


async def _image(
    ec2: Service, region: str, image: str, samples: Sequence[LaunchSpec], roots: dict[str, Root]
) -> CheckLine:
    what = f"{region}: image {image}"
    try:
        found = (await ec2.ask(region, "describe_images", ImageIds=[image]))["Images"]
    except ProviderError as error:
        return checking.failed(what, error)
    if not found:
        return CheckLine(
            what, False, "does not exist or is not shared with this account", "correct the policy's images"
        )
    said = found[0].get("Architecture")
    arch = ARCHITECTURES.get(said, said)
    if wrong := sorted(
        {s.offer.instance_type for s in samples if s.image == image and s.offer.hardware.arch != arch}
    ):
        mend = "give runner types of the other architecture an image of their own"
        return CheckLine(what, False, f"is for {arch}, and {', '.join(wrong)} is not", mend)
    roots[image] = Root.of(found[0])
    return CheckLine(what, True, str(arch))


async def _dry_run(ec2: Service, settings: AwsSettings, sample: LaunchSpec, root: Root) -> CheckLine:
    offer = sample.offer
    what = f"{offer.region}: launch {offer.instance_type} {offer.purchase} in {offer.zone}"
    try:
        request = run_instances(sample, settings, root)
        await ec2.ask(offer.region, "run_instances", **{**request, "DryRun": True})
    except ProviderError as error:
        if code_of(error.__cause__) == DRY_RUN_PASSED:
            return CheckLine(what, True)
        return checking.failed(what, error)
    return CheckLine(what, False, "EC2 ignored DryRun", "see whether the endpoint is EC2's; a machine may run now")


async def _quota(ec2: Service, region: str, purchase: Purchase) -> CheckLine:
    """The limit of standard families. What is in use of it only CloudWatch knows."""
    what = f"{region}: quota of {purchase} vCPUs"
    code = QUOTAS.get(purchase)
    if code is None:
        return CheckLine(what, True, "reserved capacity has no quota of its own")
    try:
        answer = await ec2.ask_quota(region, code)
    except ProviderError as error:
        return CheckLine(what, True, f"not known, with servicequotas:GetServiceQuota it would be: {error}")
    limit = answer["Quota"]["Value"]
    mend = f"ask AWS for more: Service Quotas, EC2, {code}"
    return CheckLine(
        what, limit > 0, f"{limit:g} for families {', '.join(STANDARD).upper()}", "" if limit else mend
    )
