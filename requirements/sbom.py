"""What is installed beside this Python, as a software bill of materials: CycloneDX, JSON.

    python requirements/sbom.py > sbom.cdx.json

Read from the metadata of the packages, so it names what is there and not what was asked for. The
same packages give the same text.
"""

import json
import re
from importlib.metadata import Distribution, distributions
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def bill() -> dict[str, Any]:
    found = {_normal(each.name): each for each in distributions()}
    own = found.pop("midflight", None)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {} if own is None else {"component": _component(own, "application")},
        "components": [_component(found[name], "library") for name in sorted(found)],
        "dependencies": [
            {"ref": _purl(each), "dependsOn": _needs(each, found)}
            for each in (*([own] if own else []), *(found[name] for name in sorted(found)))
        ],
    }


def _component(package: Distribution, kind: str) -> dict[str, Any]:
    said = package.metadata.get("License-Expression") or package.metadata.get("License") or ""
    # Some have the whole text there.
    licence = {"licenses": [{"license": {"name": said}}]} if said and "\n" not in said else {}
    purl = _purl(package)
    named = {"type": kind, "bom-ref": purl, "name": package.name, "version": package.version}
    return {**named, "purl": purl, **licence}


def _needs(package: Distribution, found: dict[str, Distribution]) -> list[str]:
    """Those of its requirements that are here; extras that nobody asked for are not."""
    names = {_normal(match[0]) for each in package.requires or () if (match := _NAME.match(each))}
    return sorted(_purl(found[name]) for name in names & found.keys())


def _purl(package: Distribution) -> str:
    return f"pkg:pypi/{_normal(package.name)}@{package.version}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print(json.dumps(bill(), indent=2))
