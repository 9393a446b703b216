"""What a cluster sells: pods made to measure. It has no prices of its own, so the policy must state one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from providers.kubernetes.settings import GpuSettings, KubernetesSettings
from scheduling.model import Gpu, Hardware, Offer, Purchase

CPUS = 2  # of a pod whose runner type does not say
MEMORY_MIB_A_CPU = 2048
ARCH = {"x64": "amd64", "arm64": "arm64"}  # as `kubernetes.io/arch` spells them


def offers(provider: str, settings: KubernetesSettings, needs: Mapping[str, Hardware]) -> Sequence[Offer]:
    """One offer for each different need that a Linux pod can serve; region and zone are the namespace.

    A GPU model that `settings.gpus` does not name is not sold: nothing would make the scheduler choose it.
    """
    place = settings.namespace
    sold = {name_of(made): made for need in needs.values() if (made := _measure(settings, need))}
    return [
        Offer(provider, place, place, name, Purchase.ON_DEMAND, None, hardware, "pod")
        for name, hardware in sold.items()
    ]


def gpu_settings(settings: KubernetesSettings, gpu: Gpu) -> GpuSettings | None:
    """How to ask for it; None where the settings do not say."""
    if not gpu.model:
        return GpuSettings.model_validate({"vendor": gpu.vendor})
    by_model = {model.casefold(): found for model, found in settings.gpus.items()}
    found = by_model.get(gpu.model.casefold())
    return found if found and found.vendor == gpu.vendor else None


def name_of(hardware: Hardware) -> str:
    """`pod-8c-16g`, `pod-2c-1536m`, `pod-4c-8g-1xa10g-arm64`."""
    memory = hardware.memory_mib
    parts = ["pod", f"{hardware.cpus}c", f"{memory}m" if memory % 1024 else f"{memory // 1024}g"]
    if gpu := hardware.gpu:
        parts.append(f"{gpu.count}x{gpu.model or gpu.vendor}")
    return "-".join([*parts, hardware.arch] if hardware.arch != "x64" else parts)


def _measure(settings: KubernetesSettings, need: Hardware) -> Hardware | None:
    if need.os != "linux" or need.arch not in ARCH:
        return None
    if need.gpu and (need.gpu.vendor not in ("nvidia", "amd", "intel") or not gpu_settings(settings, need.gpu)):
        return None
    cpus = need.cpus or CPUS
    return Hardware("linux", need.arch, cpus, need.memory_mib or MEMORY_MIB_A_CPU * cpus, 0, need.gpu)
