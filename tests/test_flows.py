"""Every function that the documentation names is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("docs/flows.md", "CONTRIBUTING.md")
NAMED = re.compile(r"`([a-z_/]+\.py)::([\w.]+)`")


def named() -> list[tuple[str, str, str]]:
    return [(page, *found) for page in PAGES for found in NAMED.findall((ROOT / page).read_text())]


@cache
def names_in(path: str) -> set[str]:
    names: set[str] = set()
    for node in ast.parse((ROOT / "src/midflight" / path).read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if hasattr(each, "name")}
    return names


@pytest.mark.parametrize(("page", "path", "name"), named())
def test_a_function_that_a_page_names_exists(page: str, path: str, name: str) -> None:
    assert name in names_in(path), f"{page} speaks of {path}::{name}"


def test_the_pages_name_functions() -> None:
    assert len(named()) > 40


def test_every_test_that_answers_an_attack_exists() -> None:
    found = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text()))
    text = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(found) > 40
    assert found - set(re.findall(r"def (test_\w+)\(", text)) == set()
