"""What images and installs are made of: locked, with hashes, and of nobody else's images."""

import json
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from midflight.kubernetes.pods import PodDefaults
from midflight.kubernetes.pods.code import code_pod
from midflight.kubernetes.pods.pod import render
from tests.kubernetes.job_objects import chief_of, job_of, pytorch_job, training_job, worker_of

ROOT = Path(__file__).parents[1]
LOCKED = ("build", "image", "dev")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def locked(name: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes, by package."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    found = {}
    for entry in text.replace("\\\n", " ").splitlines():
        package, _, rest = entry.partition("==")
        found[normal(package)] = (rest.split()[0], len(_HASH.findall(rest)))
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0]) for each in requirements}


def wanted(name: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras, build = project["project"]["optional-dependencies"], project["build-system"]["requires"]
    image = [*project["project"]["dependencies"], *extras["kubernetes"]]
    return names({"build": build, "image": image, "dev": [*image, *extras["dev"], *build]}[name])


@pytest.mark.parametrize("name", LOCKED)
def test_each_package_that_is_locked_has_a_hash(name: str) -> None:
    assert all(hashes for _, hashes in locked(name).values())


@pytest.mark.parametrize("name", LOCKED)
def test_what_is_asked_for_is_locked_at_the_version_that_is_developed_with(name: str) -> None:
    found = locked(name)
    assert wanted(name) <= found.keys(), "run `make lock`"
    text = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        package, _, version = line.partition("==")
        if (at := found.get(normal(package))) is not None and not line.startswith("#"):
            assert at[0] == version, f"{package}: run `make lock`"


def test_the_image_installs_nothing_without_a_hash_but_torch() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip (?:install|wheel) [^&;\n]*", text)
    free = [each for each in installs if not re.search("--require-hashes|--no-deps", each)]
    assert len(installs) > 4
    assert len(free) == 1 and "torch==$TORCH" in free[0]


# --- the images of pods ---------------------------------------------------------------------------

SYNC = {"mode": "git", "source": "https://git.example/a/b.git"}


def test_the_build_of_the_image_is_given_all_that_it_copies() -> None:
    """Docker ignores whatever `.dockerignore` does not name again."""
    ignored, *patterns = [
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    assert ignored == "*"
    given = {line.removeprefix("!") for line in patterns if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (ROOT / "Dockerfile").read_text("utf-8"), re.M)
    assert {source for words in copied for source in words.split()} <= given


@pytest.mark.parametrize("runtime", ["", "midflight:1"])
@pytest.mark.parametrize("mode", ["git", "rsync"])
def test_no_image_of_a_third_party_runs_beside_a_job(runtime: str, mode: str) -> None:
    """It was handed the password for git."""
    defaults = PodDefaults(runtime)
    elastic = training_job(sync=SYNC | {"mode": mode})
    elastic_pytorch = pytorch_job(elasticPolicy={"minReplicas": 1, "maxReplicas": 4})
    for obj in (elastic, elastic_pytorch, pytorch_job()):
        obj["metadata"].setdefault("annotations", {})
        if obj is not elastic:
            obj["metadata"]["annotations"]["midflight.dev/sync"] = json.dumps(SYNC | {"mode": mode})
        job = job_of(obj)
        pods: list[Any] = [code_pod(obj, job, defaults)]
        pods += [render(obj, job, each, defaults) for each in (chief_of(job), worker_of(job))]
        own = {"example/train:1", "example/torch:1"}
        for pod in pods:
            containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
            assert {each["image"] for each in containers} <= own | {runtime} - {""}


# --- the bill of materials ------------------------------------------------------------------------


def test_the_bill_of_materials_names_what_is_installed() -> None:
    bill = runpy.run_path(str(ROOT / "requirements" / "sbom.py"))["bill"]()
    assert bill["bomFormat"] == "CycloneDX" and json.dumps(bill)
    found = {each["name"].lower(): each for each in bill["components"]}
    assert {"starlette", "uvicorn", "pyyaml", "pytest"} <= found.keys()
    assert found["pytest"]["purl"] == f"pkg:pypi/pytest@{pytest.__version__}"
    refs = [each["ref"] for each in bill["dependencies"]]
    assert len(refs) == len(set(refs))
    assert {ref for each in bill["dependencies"] for ref in each["dependsOn"]} <= set(refs)
    own = bill["metadata"]["component"]["bom-ref"]
    [needs] = (each["dependsOn"] for each in bill["dependencies"] if each["ref"] == own)
    assert found["starlette"]["purl"] in needs
