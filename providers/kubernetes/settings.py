"""`settings:` of a provider of kind kubernetes: what its cluster must already have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from providers.bootstrap import RunnerPackage

Vendor = Literal["nvidia", "amd", "intel"]

GPU_RESOURCES: Mapping[str, str] = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "gpu.intel.com/i915",
}
"""The extended resource that each vendor's device plugin serves."""

FIXED = frozenset({"activeDeadlineSeconds", "automountServiceAccountToken", "enableServiceLinks", "restartPolicy"})
"""Keys of a pod's spec that are always ours."""

RESERVED = "autoscaler-"


def _absolute(path: Path) -> Path:
    if not path.expanduser().is_absolute():
        raise ValueError(f"expected an absolute path or one beginning with ~/, found {str(path)!r}")
    return path.expanduser()


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GpuSettings(Part):
    """How pods ask for one GPU model. Without a selector any GPU of the vendor may come."""

    vendor: Vendor
    resource: str = Field(default="", description="extended resource; left out: the vendor's own device plugin's")
    node_selector: Mapping[str, str] = Field(
        default_factory=dict, description="labels of the machines that have this model"
    )
    tolerations: tuple[Mapping[str, Any], ...] = Field(
        default=(), description="taints of those machines that a pod accepts"
    )


class KubernetesSettings(Part):
    """Credentials: `kubeconfig` where it is named, else the service account of the daemon's own pod, else
    `$KUBECONFIG` or `~/.kube/config`. The provider's `endpoint` replaces the address that they name."""

    namespace: str = Field(
        default="autoscaler",
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        description="where the pods run; must exist",
    )
    kubeconfig: Annotated[Path, AfterValidator(_absolute)] | None = Field(
        default=None, description="absolute path of a kubeconfig file"
    )
    context: str | None = Field(default=None, description="context of the kubeconfig; left out: the current one")
    pending_seconds: int | None = Field(
        default=60,
        ge=1,
        le=100,
        description="a pod that finds no place for so long is deleted and counts as no capacity; null: the "
        "cluster adds machines by itself, and waiting for one counts as booting",
    )
    gpus: Mapping[str, GpuSettings] = Field(
        default_factory=dict, description="GPU model, as runner types name it -> how pods ask for it"
    )
    runner: RunnerPackage = Field(
        default_factory=RunnerPackage, description="the GitHub Actions runner to install"
    )
    template: Mapping[str, Any] = Field(
        default_factory=dict,
        description="a pod's metadata and spec, merged under ours: selectors, tolerations, sidecars, security "
        "context; the container `runner` is the one that runs the job",
    )

    @model_validator(mode="after")
    def _template_is_under_ours(self) -> KubernetesSettings:
        if unknown := sorted(set(self.template) - {"metadata", "spec"}):
            raise ValueError(f"template: {unknown[0]!r} is not a part of a pod template: metadata, spec")
        for part in ("metadata", "spec"):
            if not isinstance(self.template.get(part, {}), dict):
                raise ValueError(f"template.{part}: expected a mapping")
        if taken := sorted(FIXED & set(self.template.get("spec", {}))):
            raise ValueError(f"template.spec.{taken[0]} is always set by the autoscaler: leave it out")
        metadata = self.template.get("metadata", {})
        if other := sorted(set(metadata) - {"labels", "annotations"}):
            raise ValueError(f"template.metadata.{other[0]}: only labels and annotations are taken")
        for names in metadata.values():
            if ours := [name for name in names if str(name).startswith(RESERVED)]:
                raise ValueError(f"template.metadata: {ours[0]!r} begins with {RESERVED!r}, which is reserved")
        return self
