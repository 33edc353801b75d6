"""The shape of the repository: files stay small, and the light parts stay light.

Layers and purity are import-linter's business (`make lint`); function sizes are ruff's. What
neither of them can see is here: file sizes, what an import really loads, and whether the
contracts still name modules that exist.
"""

import os
import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
FOLDERS = ("src", "tests", "bench", "examples")
LONGEST_FILE = 500
MEDIAN_FILE = 150


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_no_file_is_longer_than_500_lines() -> None:
    sizes = {str(path.relative_to(ROOT)): line_count(path) for path in python_files(*FOLDERS)}
    too_long = {name: size for name, size in sizes.items() if size > LONGEST_FILE}
    assert not too_long, f"split these by what they decide: {too_long}"


def test_the_median_source_file_is_shorter_than_150_lines() -> None:
    median = statistics.median(line_count(path) for path in python_files("src"))
    assert median < MEDIAN_FILE


@pytest.mark.parametrize("module", ["midflight", "midflight.cli.main"])
def test_importing_what_is_not_the_training_process_leaves_torch_alone(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(n for n in sys.modules if n == 'torch'))"
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "", f"import {module} also imported torch"


@pytest.mark.parametrize(
    "program", ["midflight.cli.main", "midflight.agent", "midflight.run", "midflight.torchrun"]
)
def test_help_is_printed_where_no_third_party_package_is_installed(program: str) -> None:
    # -S leaves site-packages off the path: only the standard library and our own sources remain.
    if program.endswith(".main"):
        call = f"import sys; sys.argv = ['midflight', '--help']; import {program} as m; m.main()"
        done = run_python("-S", "-c", call, PYTHONPATH=str(SOURCE))
    else:
        done = run_python("-S", "-m", program, "--help", PYTHONPATH=str(SOURCE))
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout.lower()


def test_the_files_that_contributors_are_sent_to_exist() -> None:
    rows = re.findall(r"^\| .* \|$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w/*]+(?:\.py|/))`", row)}
    found = {name for name in named if list((SOURCE / "midflight").glob(name.rstrip("/")))}
    assert len(named) > 15
    assert named == found, f"these moved: {named - found}"


def test_the_import_contracts_name_only_modules_that_exist() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = {
        name
        for contract in config["tool"]["importlinter"]["contracts"]
        for name in contract.get("source_modules", [])
        if name.startswith("*.")
    }
    missing = sorted(name for name in named if not module_exists("midflight" + name[1:]))
    assert named
    assert not missing, f"rename or remove these in pyproject.toml: {missing}"


def module_exists(name: str) -> bool:
    path = SOURCE / Path(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
