"""How many pods a cluster can hold: what its machines have left, by the API's own `nodes` and `pods`. Pure.

What counts is what the cluster's scheduler counts: allocatable less requested, on machines that are ready, not
cordoned, chosen by the selector and whose taints are tolerated.
https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

Object = Mapping[str, Any]
Amounts = Counter[str]
"""By resource, in thousandths of its unit (CPUs, bytes, pieces)."""

_UNITS = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)}
_UNITS |= {unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)}
_UNITS |= {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)}


def amounts(written: Mapping[str, Any]) -> Amounts:
    """Quantities such as `3920m`, `16Gi` or `1e3` in thousandths."""
    return Counter({name: _thousandths(str(text)) for name, text in written.items()})


def requested(spec: Object) -> Amounts:
    """What one pod reserves: its containers and sidecars, or an init container that wants more; its slot."""
    containers = sum((_requests(each) for each in spec.get("containers", ())), Amounts())
    starting = Amounts()
    for each in spec.get("initContainers", ()):
        if each.get("restartPolicy") == "Always":
            containers += _requests(each)
        else:
            starting |= _requests(each)
    return (containers | starting) + amounts(spec.get("overhead", {})) + Amounts(pods=1000)


def room(machines: Iterable[Object], pods: Iterable[Object], spec: Object) -> int:
    """How many more pods of that spec (selector, tolerations, requests) find a place now."""
    used: dict[str, Amounts] = {}
    for pod in pods:
        where = pod.get("spec", {}).get("nodeName")
        if where and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            used.setdefault(where, Amounts()).update(requested(pod["spec"]))
    need = requested(spec)
    return sum(
        _fits(amounts(machine.get("status", {}).get("allocatable", {})), used.get(_name(machine), Amounts()), need)
        for machine in machines
        if _takes(machine, spec)
    )


def _fits(has: Amounts, used: Amounts, need: Amounts) -> int:
    return min(max(0, has[name] - used[name]) // wanted for name, wanted in need.items() if wanted)


def _takes(machine: Object, spec: Object) -> bool:
    state, labels = machine.get("spec", {}), machine["metadata"].get("labels", {})
    conditions = machine.get("status", {}).get("conditions", ())
    ready = any((each.get("type"), each.get("status")) == ("Ready", "True") for each in conditions)
    if state.get("unschedulable") or not ready or not spec.get("nodeSelector", {}).items() <= labels.items():
        return False
    taints = (taint for taint in state.get("taints", ()) if taint.get("effect") != "PreferNoSchedule")
    return all(_tolerated(taint, spec.get("tolerations", ())) for taint in taints)


def _tolerated(taint: Object, tolerations: Sequence[Object]) -> bool:
    for each in tolerations:
        if each.get("effect") not in (None, "", taint.get("effect")):
            continue
        if each.get("operator") == "Exists":
            if each.get("key", "") in ("", taint.get("key")):
                return True
        elif (each.get("key"), each.get("value", "")) == (taint.get("key"), taint.get("value", "")):
            return True
    return False


def _requests(container: Object) -> Amounts:
    resources = container.get("resources", {})
    return amounts({**resources.get("limits", {}), **resources.get("requests", {})})


def _name(machine: Object) -> str:
    return str(machine["metadata"]["name"])


def _thousandths(text: str) -> int:
    digits = text.rstrip("numkMGTPEKi")
    return int(Decimal(digits) * _UNITS[text[len(digits) :]] * 1000)
