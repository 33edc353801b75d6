"""Writes the manifests below deploy/ from what `midflight operator install` applies.

    python deploy/render.py

Other kustomization.yaml files and patches are written by hand; tests/kubernetes/test_install.py
compares the rest with what would be written now.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from midflight.kubernetes.install import apply, manifests

HERE = Path(__file__).resolve().parent
TEAM = "team-a"  # what the overlay `namespaced` is written for
OLD = (1, 20)  # the oldest Kubernetes that works; the same suits all before 1.25
_HEAD = "# Written by deploy/render.py; change an overlay instead.\n"


def files() -> dict[str, str]:
    """What is to be where, below this folder."""
    image, replicas = manifests.IMAGE, manifests.REPLICAS
    wide = manifests.operator(manifests.NAMESPACE, image, replicas, "")
    narrow = manifests.operator(TEAM, image, replicas, TEAM)
    return {
        "kinds/kinds.yaml": as_text(manifests.kinds()),
        "base/operator.yaml": as_text(wide),
        "overlays/namespaced/operator.yaml": as_text(narrow),
        "components/before-1.25/kustomization.yaml": as_text([_for_old_clusters()]),
    }


def _for_old_clusters() -> dict[str, Any]:
    """Patches that make of any overlay what `midflight operator install` applies there."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [
            {
                "target": {"kind": one["kind"], "name": one["metadata"]["name"]},
                "patch": yaml.safe_dump(patch, sort_keys=False, width=200),
            }
            for one in manifests.objects()
            if (patch := list(_changes(one, apply.as_served(one, OLD))))
        ],
    }


def _changes(now: Any, old: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """As a JSON patch; an older cluster is never given what the newer ones are not."""
    if isinstance(now, dict):
        for key, value in now.items():
            at = f"{path}/{key}"
            if key in old:
                yield from _changes(value, old[key], at)
            else:
                yield {"op": "remove", "path": at}
    elif isinstance(now, list):
        for number, (value, other) in enumerate(zip(now, old, strict=True)):
            yield from _changes(value, other, f"{path}/{number}")
    elif now != old:
        yield {"op": "replace", "path": path, "value": old}


def as_text(objects: list[dict[str, Any]]) -> str:
    shown = yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, width=100)
    return f"{_HEAD}---\n{shown}"


if __name__ == "__main__":
    for name, text in files().items():
        (HERE / name).parent.mkdir(parents=True, exist_ok=True)
        (HERE / name).write_text(text, encoding="utf-8")
