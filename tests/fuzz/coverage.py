"""`python -m tests.fuzz.coverage TARGET [OPTION ...]`: one reader under atheris, which follows the
branches that an input takes. Options are libFuzzer's: -runs=1000000, -max_total_time=3600.

atheris is no dependency: `pip install atheris` where it is to be had. Findings are written into the
current folder as crash-*; put them into `tests/fuzz/corpus` as TARGET-WORDS.
"""

import os
import sys

ABSENT = "atheris is not installed: pip install atheris (Linux, CPython 3.11 to 3.13)"
LONGEST = "-max_len=16384"


def main(argv: list[str]) -> int:
    try:
        import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        print(ABSENT, file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["midflight"]):
        from tests.fuzz.targets import CORPUS, TARGETS
    if len(argv) < 2 or argv[1] not in TARGETS:
        print(f"wanted one of {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    target = TARGETS[argv[1]]
    seeds = [os.fspath(path) for path in sorted(CORPUS.glob(f"{argv[1]}-*"))]
    named = [f"-seed_inputs={','.join(seeds)}"] if seeds else []
    atheris.Setup([argv[0], LONGEST, *named, *argv[2:]], target)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
