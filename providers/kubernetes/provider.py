"""The adapter of kind `kubernetes`: five verbs on the pods of one namespace.

A pod is named like its runner, so the API server itself refuses a second one. A reference is `NAMESPACE/NAME/UID`;
nothing is ever deleted but the object of that uid. A pod that finds no place is no machine: the launch that made
it deletes it, and inventories leave it out meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from importlib.util import find_spec
from typing import Any

from providers.base import (
    TAG_FLEET,
    TAG_RUNNER,
    CheckLine,
    Clock,
    FundBalance,
    Instance,
    LaunchSpec,
    MissingSdk,
    NoCapacity,
    OutcomeUnknown,
    Provider,
    ProviderConfig,
    ProviderError,
    Refused,
    Transient,
)
from providers.kubernetes import capacity, catalogue, pod
from providers.kubernetes.check import check
from providers.kubernetes.client import Api, reason_of, status_of
from providers.kubernetes.errors import Expired
from providers.kubernetes.settings import KubernetesSettings
from scheduling.model import DurationMs, Offer, UnixMs

STUCK_MS: DurationMs = 30_000
"""A pod that is to go counts as gone; so long after its grace it counts as a machine again."""
WATCH_AGAIN_MS: DurationMs = 500

Pod = dict[str, Any]


class Kubernetes:
    """One namespace of one cluster."""

    def __init__(self, config: ProviderConfig, clock: Clock) -> None:
        self._config = config
        self._settings: KubernetesSettings = config.settings
        self._clock = clock
        self._api = Api(config.name, config.settings, config.endpoint, clock)
        self._unplaced: set[str] = set()  # pods whose launch is under way here

    async def offers(self) -> Sequence[Offer]:
        """With `max_runners: from_cluster` each counts what runs of it and what the cluster has room for."""
        sold = catalogue.offers(self._config.name, self._settings, self._config.needs)
        if not self._config.from_cluster:
            return sold
        machines, pods = await self._api.list_all("/nodes"), await self._api.list_all("/pods")
        ours: Counter[str] = Counter(
            each["metadata"].get("annotations", {}).get(pod.TAG_INSTANCE_TYPE)
            for each in pods
            if _labels(each).get(TAG_FLEET) == self._config.fleet
            and each["metadata"]["namespace"] == self._settings.namespace
            and _placed(each)
            and not _ended(each)
        )
        return [
            replace(
                offer,
                count=ours[offer.instance_type]
                + capacity.room(machines, pods, pod.shape(offer.hardware, 0, self._settings)),
            )
            for offer in sold
        ]

    async def launch(self, spec: LaunchSpec) -> Instance:
        """Returns as soon as the pod has a place. A pod of that name that ended earlier is `OutcomeUnknown`."""
        if spec.offer.zone != self._settings.namespace:
            raise Refused(
                f"{self._config.name}: this launch is for namespace {spec.offer.zone}, and the policy says "
                f"{self._settings.namespace} now"
            )
        self._unplaced.add(spec.name)
        try:
            made, fresh = await self._create(spec)
            await self._give_secret(spec, made, fresh)
            if self._settings.pending_seconds is not None:
                made = await self._await_place(made)
            return _instance(made)
        finally:
            self._unplaced.discard(spec.name)

    async def terminate(self, ref: str) -> None:
        _, name, uid = ref.split("/")
        await self._delete(name, {"uid": uid})

    async def instances(self) -> Sequence[Instance]:
        """An ended pod is an entry without `ref`: what is left of it is removed like a disk elsewhere."""
        pods = await self._api.list_all("pods", f"{TAG_FLEET}={self._config.fleet}")
        return [self._listed(found) for found in pods if not self._left_out(found)]

    async def check(self, samples: Sequence[LaunchSpec]) -> list[CheckLine]:
        """RBAC, quotas, a dry run of each pod and the clock."""
        return await check(self._api, self._settings, samples, self._clock.now_ms())

    async def balance(self) -> FundBalance | None:
        """A cluster has no bills."""
        return None

    async def close(self) -> None:
        await self._api.close()

    # ---- launch --------------------------------------------------------------------------------------------

    async def _create(self, spec: LaunchSpec) -> tuple[Pod, bool]:
        """The pod, and whether this call made it. An unknown field of the template is refused by the server."""
        strict = {"fieldValidation": "Strict"}
        try:
            body = pod.pod(spec, self._settings)
            return await self._api.call("POST", "pods", strict, body, launching=True), True
        except ProviderError as error:
            if reason_of(error) != "AlreadyExists":
                raise
        found = await self._look(spec.name)
        if _labels(found).get(TAG_FLEET) != spec.fleet or _labels(found).get(TAG_RUNNER) != spec.runner_id:
            raise Refused(f"{self._where(spec.name)} exists and is not of this fleet")
        return found, False

    async def _give_secret(self, spec: LaunchSpec, made: Pod, fresh: bool) -> None:
        """The pod waits for it. A pod made just now that cannot get it goes again."""
        try:
            body = pod.secret(spec, self._settings, made["metadata"]["uid"])
            await self._api.call("POST", "secrets", None, body, launching=True)
        except ProviderError as error:
            if reason_of(error) == "AlreadyExists":
                return
            if not fresh or isinstance(error, OutcomeUnknown):
                raise OutcomeUnknown(f"{self._where(spec.name)} has no secret yet: {error}") from error
            await self._undo(made)
            raise

    async def _await_place(self, made: Pod) -> Pod:
        """Follow the pod until the cluster's scheduler has placed it; past `pending_seconds` it is taken back."""
        name = made["metadata"]["name"]
        latest = [made]
        try:
            async with asyncio.timeout(self._settings.pending_seconds):
                await self._follow(name, latest)
        except TimeoutError:
            while not _placed(latest[-1]):
                if await self._undo(latest[-1], exactly=True):
                    raise NoCapacity(
                        f"{self._where(name)} found no place in {self._settings.pending_seconds} s: "
                        f"{_why_unplaced(latest[-1])}"
                    ) from None
                latest.append(await self._look(name))
        return latest[-1]

    async def _follow(self, name: str, latest: list[Pod]) -> None:
        """Append what becomes of the pod, until it has a place. A broken or expired watch begins with a look."""
        while not _placed(_alive(latest[-1], self._where(name))):
            try:
                version = latest[-1]["metadata"]["resourceVersion"]
                async with aclosing(self._api.watch("pods", name, version)) as events:
                    async for event in events:
                        if event["type"] == "BOOKMARK":
                            continue
                        if event["type"] == "ERROR":
                            break
                        if event["type"] == "DELETED":
                            raise OutcomeUnknown(f"{self._where(name)} was deleted by somebody else")
                        latest.append(event["object"])
                        if _placed(_alive(latest[-1], self._where(name))):
                            return
            except OutcomeUnknown:
                raise
            except ProviderError as error:
                if not isinstance(error, Transient | Expired):
                    raise OutcomeUnknown(f"{self._where(name)} cannot be watched: {error}") from error
            await self._clock.sleep(WATCH_AGAIN_MS)
            latest.append(await self._look(name))

    async def _look(self, name: str) -> Pod:
        """The pod as it is now. Any failure is `OutcomeUnknown`: it is or was there."""
        try:
            return _alive(await self._api.ask("GET", f"pods/{name}"), self._where(name))
        except ProviderError as error:
            raise OutcomeUnknown(f"{self._where(name)} exists and cannot be read: {error}") from error

    async def _undo(self, made: Pod, exactly: bool = False) -> bool:
        """Delete a pod that never became a machine. `exactly`: not if it has changed since; False then."""
        metadata = made["metadata"]
        preconditions = {"uid": metadata["uid"]}
        if exactly:
            preconditions["resourceVersion"] = metadata["resourceVersion"]
        try:
            return await self._delete(metadata["name"], preconditions)
        except ProviderError as error:
            raise OutcomeUnknown(f"{self._where(metadata['name'])} could not be deleted: {error}") from error

    # ---- both ----------------------------------------------------------------------------------------------

    async def _delete(self, name: str, preconditions: dict[str, str]) -> bool:
        """False when another object has that name, or it has changed: what was meant is not there."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        try:
            await self._api.ask("DELETE", f"pods/{name}", None, body)
        except ProviderError as error:
            if status_of(error) not in (404, 409):
                raise
            return status_of(error) == 404
        return True

    def _left_out(self, found: Pod) -> bool:
        metadata = found["metadata"]
        if leaves := metadata.get("deletionTimestamp"):
            return _ms(leaves) + STUCK_MS > self._clock.now_ms()
        return metadata["name"] in self._unplaced and not _placed(found)

    def _listed(self, found: Pod) -> Instance:
        return _instance(found, ended=_ended(found))

    def _where(self, name: str) -> str:
        return f"{self._config.name}: pod {self._settings.namespace}/{name}"


def _instance(found: Pod, ended: bool = False) -> Instance:
    metadata = found["metadata"]
    tags = {key: value for key, value in metadata.get("annotations", {}).items() if key.startswith("autoscaler-")}
    namespace = metadata["namespace"]
    ref = f"{namespace}/{metadata['name']}/{metadata['uid']}"
    return Instance(
        runner_id=_labels(found).get(TAG_RUNNER, ""),
        ref="" if ended else ref,
        region=namespace,
        zone=namespace,
        instance_type=tags.pop(pod.TAG_INSTANCE_TYPE, ""),
        launched_ms=_ms(metadata["creationTimestamp"]),
        tags=tags,
        orphans=(ref,) if ended else (),
    )


def _alive(found: Pod, where: str) -> Pod:
    """The pod itself; `OutcomeUnknown` when it has ended or is to go."""
    if _ended(found) or found["metadata"].get("deletionTimestamp"):
        raise OutcomeUnknown(f"{where} has ended or is being deleted: {found.get('status', {}).get('reason', '')}")
    return found


def _ended(found: Pod) -> bool:
    return found.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _placed(found: Pod) -> bool:
    return bool(found.get("spec", {}).get("nodeName"))


def _why_unplaced(found: Pod) -> str:
    """The scheduler's own words, such as `0/3 nodes are available: 3 Insufficient cpu.`"""
    for condition in found.get("status", {}).get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("message"):
            return str(condition["message"])
    return "the scheduler has said nothing about it"


def _labels(found: Pod) -> dict[str, str]:
    return found["metadata"].get("labels") or {}


def _ms(at: str) -> UnixMs:
    """RFC 3339, as the API writes times."""
    return int(datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp() * 1000)


class KubernetesKind:
    name = "kubernetes"
    settings = KubernetesSettings
    extra = "kubernetes"
    takes_image = True

    def build(self, config: ProviderConfig, clock: Clock) -> Provider:
        if find_spec("kubernetes_asyncio") is None:
            raise MissingSdk(
                f"provider {config.name} is of kind kubernetes, which needs kubernetes-asyncio: "
                'pip install ".[kubernetes]" in a checkout'
            )
        return Kubernetes(config, clock)

    def catalogue(self, config: ProviderConfig) -> Sequence[Offer]:
        return catalogue.offers(config.name, config.settings, config.needs)


KIND = KubernetesKind()
