"""What only Kubernetes has: one launch on the wire, a pod without a place, chunked lists, watches, credentials."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from dataclasses import replace

import pytest
from pydantic import ValidationError

from providers.base import MissingSdk, ProviderConfig, Unauthorized
from providers.conformance import TOKEN
from providers.kubernetes import KIND, KubernetesSettings
from providers.kubernetes.pod import merge
from providers.registry import kind
from scheduling.model import Gpu, Hardware
from tests.providers.k8s_bench import KubernetesBench, kubeconfig
from tests.providers.k8s_cluster import Cluster

_CA = """\
-----BEGIN CERTIFICATE-----
MIIBdjCCARugAwIBAgIUczYtKUh1eaW/1PZp+M/673g2P/kwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMzAxNDIyNTlaGA8yMTI2MTEwNjE0MjI1
OVowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABCYN
eQXomSGtd5XOTPmkN7J+0QLKCaHkCgzqYEGRfqGZmoGpTd0M+atBz7hPJMZXCJ0M
6POOt+0E8Ud1Cs2qCA6jUzBRMB0GA1UdDgQWBBS8THQ46HUwaZKoWE3IQPAZD7IN
nTAfBgNVHSMEGDAWgBS8THQ46HUwaZKoWE3IQPAZD7INnTAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0kAMEYCIQDHbCzJZ52YdnZKngm9VVh/up8OlnhUnvn4
tveTBOwxxAIhANdvay6dOZijxO6tF8G/FmD+7cBUD/ScdC9Dc6P/n1ro
-----END CERTIFICATE-----
"""

pytest.importorskip("kubernetes_asyncio", reason="kubernetes-asyncio is not installed")


@pytest.fixture
async def cluster():
    async with Cluster() as cluster:
        yield cluster


@pytest.fixture
def bench(cluster, clock, tmp_path):
    return KubernetesBench(cluster, clock, tmp_path)


@pytest.fixture
async def provider(bench):
    provider = bench.kind.build(bench.config, bench.clock)
    yield provider
    await provider.close()


def sent(cluster: Cluster, resource: str = "pods") -> dict:
    return [body for method, path, _, body in cluster.requests if (method, path) == ("POST", resource)][-1]


def test_the_registry_finds_it():
    assert kind("kubernetes").settings is KubernetesSettings


def test_a_missing_sdk_names_what_to_install(bench, monkeypatch):
    monkeypatch.setattr("providers.kubernetes.provider.find_spec", lambda name: None)
    with pytest.raises(MissingSdk, match=r'pip install "\.\[kubernetes\]" in a checkout'):
        bench.kind.build(bench.config, bench.clock)


def test_finding_the_kind_does_not_import_its_sdk():
    code = "import sys, providers.kubernetes; sys.exit('kubernetes_asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- one launch on the wire --------------------------------------------------------------------------------


async def test_a_launch_on_the_wire(bench, provider, cluster):
    spec = bench.spec(1)
    await provider.launch(spec)
    pod = sent(cluster)
    assert pod["metadata"]["name"] == spec.name
    assert pod["metadata"]["labels"] == {"autoscaler-fleet": "fleet", "autoscaler-runner": spec.runner_id}
    assert pod["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert pod["spec"]["activeDeadlineSeconds"] == 4 * 3600
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["enableServiceLinks"] is False
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "registry.example/runner:1"
    amounts = {"cpu": "4", "memory": "16384Mi", "ephemeral-storage": "30Gi"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert cluster.requests[0][2] == {"fieldValidation": "Strict"}


async def test_the_pod_meets_the_standard_restricted(bench, provider, cluster):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    await provider.launch(bench.spec(1))
    spec = sent(cluster)["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {next(iter(volume.keys() - {"name"})) for volume in spec["volumes"]} == {"secret", "emptyDir"}


async def test_i11_the_launch_data_is_in_the_secret_and_nowhere_else(bench, provider, cluster):
    made = await provider.launch(bench.spec(1))
    assert TOKEN not in json.dumps(list(cluster.pods.values()))
    (secret,) = cluster.secrets.values()
    assert json.loads(base64.b64decode(secret["data"]["boot.json"])) == {"token": TOKEN}
    assert secret["immutable"] is True
    assert secret["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": bench.spec(1).name, "uid": made.ref.rpartition("/")[2]}
    ]


async def test_k28_the_secret_goes_with_its_pod(bench, provider, cluster):
    made = await provider.launch(bench.spec(1))
    await provider.terminate(made.ref)
    await cluster.remove(bench.spec(1).name)  # the kubelet is done
    assert cluster.secrets == {}


def test_the_programs_run_from_where_the_secret_is_mounted(bench, tmp_path):
    """Every program that the pod's command and hooks name is a file of the secret."""
    from providers.kubernetes import pod

    spec = bench.spec(1, boot="{}")
    files = pod.secret(spec, bench.config.settings, "uid")["stringData"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = pod.pod(spec, bench.config.settings)["spec"]["containers"][0]["command"]
    assert command == ["python3", "-I", "/etc/autoscaler/machine.py", "/etc/autoscaler"]
    ran = subprocess.run(
        [sys.executable, "-I", str(tmp_path / "machine.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "KeyError: 'url'" in ran.stderr  # it read its launch data and plan
    assert {"hook.py", "started.sh", "finished.sh", "machine.json"} <= files.keys()


async def test_gpus_are_asked_for_as_the_settings_say(cluster, clock, tmp_path):
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    selector = {"nvidia.com/gpu.product": "NVIDIA-A10G"}
    gpus = {"A10G": {"vendor": "nvidia", "node_selector": selector, "tolerations": [toleration]}}
    bench = KubernetesBench(cluster, clock, tmp_path, gpus=gpus)
    needs = {
        "gpu": Hardware(cpus=4, memory_mib=16384, gpu=Gpu("nvidia", "a10g", 2)),
        "any": Hardware(cpus=4, gpu=Gpu("amd", "", 1)),
        "unknown": Hardware(cpus=4, gpu=Gpu("nvidia", "h100", 1)),
        "other": Hardware(os="windows"),
    }
    bench.config = replace(bench.config, needs=needs)
    one, amd = KIND.catalogue(bench.config)  # neither a model that nothing selects, nor Windows
    assert [one.instance_type, amd.instance_type] == ["pod-4c-16g-2xa10g", "pod-4c-8g-1xamd"]
    provider = KIND.build(bench.config, clock)
    await provider.launch(bench.spec(1, offer=one))
    spec = sent(cluster)["spec"]
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert selector.items() <= spec["nodeSelector"].items()
    assert spec["tolerations"] == [toleration]
    await provider.launch(bench.spec(2, offer=amd))
    assert sent(cluster)["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "1"
    await provider.close()


# ---- the template ------------------------------------------------------------------------------------------


async def test_the_template_lies_under_ours(cluster, clock, tmp_path):
    template = {
        "metadata": {"labels": {"team": "ci"}},
        "spec": {
            "nodeSelector": {"pool": "ci"},
            "tolerations": [{"key": "ci", "operator": "Exists"}],
            "securityContext": {"runAsUser": 1000},
            "initContainers": [{"name": "dind", "image": "docker:dind", "restartPolicy": "Always"}],
            "containers": [
                {
                    "name": "runner",
                    "image": "somebody-elses",
                    "env": [{"name": "DOCKER_HOST", "value": "unix:///sock/docker.sock"}],
                    "volumeMounts": [{"name": "sock", "mountPath": "/sock"}],
                }
            ],
            "volumes": [{"name": "sock", "emptyDir": {}}],
        },
    }
    bench = KubernetesBench(cluster, clock, tmp_path, template=template)
    provider = KIND.build(bench.config, clock)
    await provider.launch(bench.spec(1))
    await provider.close()
    pod = sent(cluster)
    assert pod["metadata"]["labels"]["team"] == "ci"
    assert pod["spec"]["nodeSelector"] == {
        "pool": "ci",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    assert pod["spec"]["tolerations"] == [{"key": "ci", "operator": "Exists"}]
    assert pod["spec"]["securityContext"]["runAsUser"] == 1000
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["dind"]
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "registry.example/runner:1"
    assert container["env"] == [{"name": "DOCKER_HOST", "value": "unix:///sock/docker.sock"}]
    assert {mount["name"] for mount in container["volumeMounts"]} == {"autoscaler", "autoscaler-work", "sock"}
    assert {volume["name"] for volume in pod["spec"]["volumes"]} == {"autoscaler", "autoscaler-work", "sock"}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"spec": {"restartPolicy": "Always"}}, "template.spec.restartPolicy is always set by the autoscaler"),
        ({"spec": {"automountServiceAccountToken": True}}, "automountServiceAccountToken is always set"),
        ({"kind": "Pod"}, "'kind' is not a part of a pod template"),
        ({"metadata": {"name": "mine"}}, "only labels and annotations are taken"),
        ({"metadata": {"labels": {"autoscaler-fleet": "x"}}}, "begins with 'autoscaler-', which is reserved"),
        ({"spec": []}, "template.spec: expected a mapping"),
    ],
)
def test_what_a_template_may_not_say(template, words):
    with pytest.raises(ValidationError, match=words):
        KubernetesSettings.model_validate({"template": template})


def test_a_relative_kubeconfig_is_refused():
    with pytest.raises(ValidationError, match="expected an absolute path"):
        KubernetesSettings.model_validate({"kubeconfig": "config"})


def test_merging():
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 4}}) == {"a": {"b": 4, "c": 2}, "d": 3}
    assert merge([{"name": "x", "v": 1, "w": 2}, {"name": "y"}], [{"name": "x", "v": 3}]) == [
        {"name": "x", "v": 3, "w": 2},
        {"name": "y"},
    ]
    assert merge([{"key": "a"}], [{"key": "b"}, {"key": "a"}]) == [{"key": "b"}, {"key": "a"}]


# ---- credentials -------------------------------------------------------------------------------------------


async def test_a_rotated_token_is_read_again(bench, provider, cluster, tmp_path):
    await provider.instances()
    cluster.token = "rotated"
    kubeconfig(tmp_path, cluster.url, "rotated")
    assert await provider.instances() == []


async def test_a_wrong_token_is_unauthorized(bench, provider, cluster):
    cluster.token = "another"
    with pytest.raises(Unauthorized, match=r"lab \(ci\) POST pods: 401"):
        await provider.launch(bench.spec(1))


async def test_without_credentials_it_says_so(bench, clock, tmp_path):
    settings = bench.config.settings.model_copy(update={"kubeconfig": tmp_path / "nothing"})
    provider = KIND.build(replace(bench.config, settings=settings), clock)
    with pytest.raises(Unauthorized, match=r"lab \(ci\): no credentials for the cluster"):
        await provider.instances()


async def test_the_endpoint_replaces_the_address(cluster, clock, tmp_path):
    bench = KubernetesBench(cluster, clock, tmp_path)
    path = kubeconfig(tmp_path, "https://192.0.2.1:6443")
    settings = bench.config.settings.model_copy(update={"kubeconfig": path})
    config: ProviderConfig = replace(bench.config, settings=settings, endpoint=cluster.url + "/")
    provider = KIND.build(config, clock)
    assert await provider.instances() == []
    await provider.close()


async def test_in_a_cluster_the_pod_s_own_account_is_used(cluster, clock, tmp_path, monkeypatch):
    from kubernetes_asyncio.config import incluster_config

    for name, content in {"token": cluster.token, "ca.crt": _CA}.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setitem(
        incluster_config.load_incluster_config.__globals__, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token")
    )
    monkeypatch.setitem(
        incluster_config.load_incluster_config.__globals__, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt")
    )
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    bench = KubernetesBench(cluster, clock, tmp_path)
    settings = bench.config.settings.model_copy(update={"kubeconfig": None})
    provider = KIND.build(replace(bench.config, settings=settings, endpoint=cluster.url), clock)
    assert await provider.instances() == []
    await provider.close()
