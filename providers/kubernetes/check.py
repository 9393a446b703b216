"""`provider check` for a cluster: RBAC by SelfSubjectAccessReview, quota, and a dry run of each pod.

A dry run (https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run) passes admission, so it tells what
Pod Security, quotas and webhooks would say; it says nothing of a place to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from providers import checking
from providers.base import CheckLine, LaunchSpec, ProviderError
from providers.kubernetes import pod
from providers.kubernetes.client import Api
from providers.kubernetes.settings import KubernetesSettings
from scheduling.model import UnixMs

NEEDED = (
    ("create", "pods"),
    ("get", "pods"),
    ("list", "pods"),
    ("watch", "pods"),
    ("delete", "pods"),
    ("create", "secrets"),
)
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RBAC = "apply the Role and RoleBinding of deploy/providers/kubernetes.md"


async def check(
    api: Api, settings: KubernetesSettings, samples: Sequence[LaunchSpec], now_ms: UnixMs
) -> list[CheckLine]:
    """Permissions in the namespace, its quotas, a dry run of each sample, the clock."""
    lines = [await _permissions(api, settings.namespace), *await _quotas(api)]
    lines += [await _dry_run(api, settings, sample) for sample in samples]
    date = await _date(api)
    return [*lines, checking.clock(date, now_ms)] if date else lines


async def _permissions(api: Api, namespace: str) -> CheckLine:
    granted = []
    for verb, resource in NEEDED:
        attributes = {"namespace": namespace, "verb": verb, "resource": resource}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = await api.ask("POST", REVIEWS, None, body)
        except ProviderError as error:
            return checking.failed("permissions", error, RBAC)
        if answer.get("status", {}).get("allowed"):
            granted.append(f"{verb} {resource}")
    return checking.permissions([f"{verb} {resource}" for verb, resource in NEEDED], granted, RBAC)


async def _quotas(api: Api) -> list[CheckLine]:
    """What counts pods, CPU or memory; a namespace without quotas has none to show."""
    try:
        found = (await api.ask("GET", "resourcequotas"))["items"]
    except ProviderError as error:
        return [CheckLine("quota", True, f"not known, a role that may list resourcequotas would tell: {error}")]
    lines = []
    for each in found:
        hard, used = each.get("status", {}).get("hard", {}), each.get("status", {}).get("used", {})
        full = sorted(key for key in hard if used.get(key) == hard[key] and hard[key] != "0")
        detail = ", ".join(f"{key} {used.get(key, '0')} of {hard[key]}" for key in sorted(hard))
        mend = "raise the quota, or lower max_runners" if full else ""
        lines.append(CheckLine(f"quota {each['metadata']['name']}", not full, detail, mend))
    return lines or [CheckLine("quota", True, "the namespace has none")]


async def _dry_run(api: Api, settings: KubernetesSettings, sample: LaunchSpec) -> CheckLine:
    what = f"pod {sample.offer.instance_type} with image {sample.image}"
    try:
        body: dict[str, Any] = pod.pod(sample, settings)
        await api.call("POST", "pods", {"fieldValidation": "Strict", "dryRun": "All"}, body)
    except ProviderError as error:
        return checking.failed(what, error)
    return CheckLine(what, True, "admitted by a dry run")


async def _date(api: Api) -> str:
    try:
        return await api.date()
    except ProviderError:
        return ""
