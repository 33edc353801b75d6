"""The Helm chart, rendered by Helm: the objects that `midflight operator install` applies."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from midflight.kubernetes.install import manifests

CHART = Path(__file__).resolve().parents[2] / "deploy" / "chart"
KEPT = {"Namespace", "CustomResourceDefinition"}
CURRENT = kubernetes_validate.latest_version()
Object = dict[str, Any]


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    beside = str(Path(sys.executable).parent)
    found = shutil.which("helm", path=beside) or shutil.which("helm")
    program = found or pytest.skip("there is no helm, which the extra `dev` installs")
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=60)


def rendered(*values: str, version: str = "1.31") -> list[Object]:
    settings = [word for each in values for word in ("--set", each)]
    done = helm("template", "midflight", str(CHART), "--kube-version", version, *settings)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def sorted_by_identity(objects: list[Object]) -> list[Object]:
    def identity(one: Object) -> tuple[str, str]:
        return one["kind"], one["metadata"]["name"]

    return sorted(objects, key=identity)


def without_policy(one: Object) -> Object:
    """Without Helm's annotation on those that `helm uninstall` is to leave."""
    if one["kind"] in KEPT:
        assert one["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    return one


def test_its_values_say_what_the_command_says_when_nothing_is_set() -> None:
    found = [without_policy(one) for one in rendered()]
    assert sorted_by_identity(found) == sorted_by_identity(manifests.objects())


def test_values_are_as_the_flags_of_the_command() -> None:
    settings = ("namespace=ops", "image=registry/midflight:7", "replicas=1")
    options = ("--pod-security=baseline", "--pod-limit=cpu=4")
    found = rendered(*settings, f"options={{{','.join(options)}}}")
    wanted = manifests.operator("ops", "registry/midflight:7", 1, "", options)
    assert sorted_by_identity([without_policy(one) for one in found]) == sorted_by_identity(
        [*manifests.kinds(), *wanted]
    )


def test_a_kind_of_kubeflow_s_is_left_out_where_that_is_said() -> None:
    kinds = [one["metadata"]["name"] for one in rendered("pytorchJobs=false")]
    assert "trainingjobs.kai.alibabacloud.com" in kinds
    assert "pytorchjobs.kubeflow.org" not in kinds


def test_metrics_are_watched_where_that_is_said() -> None:
    found = rendered("monitoring=true", "namespace=ops")
    watching = [one for one in found if one["apiVersion"].startswith("monitoring.")]
    source = CHART.parent / "overlays" / "monitoring" / "monitoring.yaml"
    wanted = list(yaml.safe_load_all(source.read_text(encoding="utf-8")))
    for one in wanted:
        one["metadata"]["namespace"] = "ops"
    assert sorted_by_identity(watching) == sorted_by_identity(wanted)


def test_all_of_it_is_valid_and_helm_has_nothing_against_it() -> None:
    for one in rendered():
        kubernetes_validate.validate(one, CURRENT, strict=True)
    assert helm("lint", "--strict", str(CHART)).returncode == 0


def test_a_cluster_that_is_too_old_for_it_is_refused() -> None:
    done = helm("template", "midflight", str(CHART), "--kube-version", "1.24")
    assert done.returncode != 0
    assert "requires kubeVersion: >=1.25" in done.stderr
