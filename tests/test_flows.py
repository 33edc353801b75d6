"""Every file and function that the pages about the code name is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CODE = ROOT / "src/midflight"
PAGES = ("docs/flows.md", "docs/architecture.md", "CONTRIBUTING.md")
LINK = re.compile(r"\[([^]]+)\]\(([^)#\s]+)(?:#[^)]*)?\)")
FUNCTION = re.compile(r"`([a-z_/]+\.py)::([\w.]+)`")
PATH = re.compile(r"`([a-z_]+/[a-z_/]*(?:\.[a-z]+)?)`")


def links() -> list[tuple[str, str, Path]]:
    return [
        (page, text, (ROOT / page).parent / target)
        for page in PAGES
        for text, target in LINK.findall((ROOT / page).read_text())
        if "://" not in target
    ]


def functions() -> list[tuple[str, Path, str]]:
    """Those behind a link to a Python file, and those named as `path.py::name`."""
    linked = [
        (page, target, text.strip("`"))
        for page, text, target in links()
        if target.suffix == ".py" and text.startswith("`")
    ]
    named = [
        (page, CODE / path, name)
        for page in PAGES
        for path, name in FUNCTION.findall((ROOT / page).read_text())
    ]
    return linked + named


@cache
def names_in(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if hasattr(each, "name")}
    return names


def test_every_link_of_the_pages_leads_to_a_file() -> None:
    lost = [f"{page}: {target}" for page, _, target in links() if not target.exists()]
    assert not lost


def test_every_test_that_answers_an_attack_exists() -> None:
    found = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text()))
    text = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(found) > 40
    assert found - set(re.findall(r"def (test_\w+)\(", text)) == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    folders = (ROOT, CODE.parent, CODE, *(each for each in CODE.iterdir() if each.is_dir()))
    lost = [
        path
        for path in PATH.findall((ROOT / page).read_text())
        if not any((folder / f"{path}{end}").exists() for folder in folders for end in ("", ".py"))
    ]
    assert not lost


def test_every_function_that_a_page_names_exists() -> None:
    lost = [
        f"{page}: {path.name}::{name}"
        for page, path, name in functions()
        if not path.exists() or name not in names_in(path)
    ]
    assert not lost


@pytest.mark.parametrize(("page", "least"), [("docs/flows.md", 100), ("CONTRIBUTING.md", 10)])
def test_the_pages_name_functions(page: str, least: int) -> None:
    assert len([each for each in functions() if each[0] == page]) >= least


def test_each_hop_of_the_flows_is_a_link_to_a_function() -> None:
    hops, _ = (ROOT / "docs/flows.md").read_text().split("\n## How long the flows are\n")
    rows = [row for row in hops.splitlines() if row[:1] == "|"]
    for row in rows:
        function = row.split("|")[2].strip()
        header = function == "function" or set(function) == {"-"}
        assert header or LINK.match(function), row


def test_the_lengths_of_the_flows_are_those_of_their_tables() -> None:
    *flows, lengths = (ROOT / "docs/flows.md").read_text().split("\n## ")[1:]
    stated = [
        (int(functions), int(files))
        for functions, files in re.findall(r"^\| .* \| (\d+) \| (\d+) \|$", lengths, re.MULTILINE)
    ]
    assert stated == [flow_length(flow) for flow in flows]


def flow_length(flow: str) -> tuple[int, int]:
    """Functions and files that the tables of a flow link to, each counted once."""
    hops = {
        (target, function)
        for row in flow.splitlines()
        if row[:1] == "|"
        for function, target in LINK.findall(row)
    }
    return len(hops), len({target for target, _ in hops})
