"""One launch as Azure takes it: the body of PUT virtualMachines. Pure: one spec, one policy and one key give the
same bytes.

The network interface, the public address and the disk are part of the machine and deleted with it. Shapes are
those of the REST reference, "Virtual Machines - Create Or Update".
"""

from __future__ import annotations

import base64
import re
from typing import Any

from providers.azure.settings import AzureSettings
from providers.base import LaunchSpec, Refused
from providers.bootstrap import linux_user_data
from scheduling.model import Purchase

CUSTOM_DATA_BYTES = 65_535
METADATA_SERVICE = "169.254.169.254/32"
USER = "azureuser"
NETWORK_API = "2022-11-01"  # one of the two that virtual machines know
URN = re.compile(r"([^:/]+):([^:/]+):([^:/]+):([^:/]+)")


def virtual_machine(spec: LaunchSpec, settings: AzureSettings, public_key: str) -> dict[str, Any]:
    """The body. Refused when settings lack a part. `public_key` is of a key that nobody holds (see `client`)."""
    offer, tags = spec.offer, {**settings.tags, **spec.tags}
    subnet = settings.subnets.get(offer.region)
    if subnet is None:
        raise Refused(f"settings.subnets names no subnet in {offer.region} for provider {offer.provider}")
    disk: dict[str, Any] = {
        "name": f"{spec.name}-disk",
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "managedDisk": {"storageAccountType": settings.disk_type},
    }
    if spec.disk_gib:
        disk["diskSizeGB"] = spec.disk_gib
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": offer.instance_type},
        "storageProfile": {"imageReference": _image(spec.image), "osDisk": disk},
        "osProfile": {
            "computerName": spec.name,
            "adminUsername": USER,
            "customData": base64.b64encode(_user_data(spec, settings).encode()).decode(),
            "linuxConfiguration": {
                "disablePasswordAuthentication": True,
                "ssh": {"publicKeys": [{"path": f"/home/{USER}/.ssh/authorized_keys", "keyData": public_key}]},
            },
            "allowExtensionOperations": False,
        },
        "networkProfile": {
            "networkApiVersion": NETWORK_API,
            "networkInterfaceConfigurations": [_network(spec, settings, subnet, tags)],
        },
        "priority": "Regular",
    }
    if offer.purchase is Purchase.SPOT:
        no_bid = {"maxPrice": -1}  # up to the price on demand: the policy's `max_price` decides
        properties.update(priority="Spot", evictionPolicy="Delete", billingProfile=no_bid)
    body: dict[str, Any] = {"location": offer.region, "tags": tags, "properties": properties}
    if offer.zone != offer.region:
        body["zones"] = [offer.zone.rpartition("-")[2]]
    return body


def _network(spec: LaunchSpec, settings: AzureSettings, subnet: str, tags: dict[str, str]) -> dict[str, Any]:
    address: dict[str, Any] = {"subnet": {"id": subnet}, "primary": True}
    if settings.public_ip:
        address["publicIPAddressConfiguration"] = {
            "name": f"{spec.name}-ip",
            "sku": {"name": "Standard"},
            "tags": tags,
            "properties": {"deleteOption": "Delete", "publicIPAllocationMethod": "Static"},
        }
    properties: dict[str, Any] = {
        "primary": True,
        "deleteOption": "Delete",
        "ipConfigurations": [{"name": "main", "properties": address}],
    }
    if group := settings.security_groups.get(spec.offer.region):
        properties["networkSecurityGroup"] = {"id": group}
    return {"name": f"{spec.name}-nic", "tags": tags, "properties": properties}


def _image(image: str) -> dict[str, str]:
    """An image by its resource id, by a gallery's public id, or as PUBLISHER:OFFER:SKU:VERSION."""
    if found := URN.fullmatch(image):
        return dict(zip(("publisher", "offer", "sku", "version"), found.groups(), strict=True))
    for start, key in (
        ("/communitygalleries/", "communityGalleryImageId"),
        ("/sharedgalleries/", "sharedGalleryImageId"),
        ("/subscriptions/", "id"),
    ):
        if image.casefold().startswith(start):
            return {key: image}
    raise Refused(
        f"image {image!r} is neither PUBLISHER:OFFER:SKU:VERSION nor the id of an image "
        "(/subscriptions/..., /CommunityGalleries/..., /SharedGalleries/...)"
    )


def _user_data(spec: LaunchSpec, settings: AzureSettings) -> str:
    arch = spec.offer.hardware.arch
    package = settings.runner.for_arch(arch)
    if package is None:
        raise Refused(f"settings.runner.sha256 has no entry for {arch}, which {spec.offer.instance_type} needs")
    notice = "azure" if spec.offer.purchase is Purchase.SPOT else ""
    text = linux_user_data(spec.boot, package, spec.lifetime_ms, [METADATA_SERVICE], notice)
    if len(text) > CUSTOM_DATA_BYTES:
        raise Refused(
            f"custom data of runner type {spec.runner_type} is {len(text)} bytes and Azure takes "
            f"{CUSTOM_DATA_BYTES}: shorten the type's access lists"
        )
    return text
