"""`-o`: the same four formats for every verb. JSON and YAML hold the keys of the API's views.

Without `-o` a verb prints what people know from the guides; `wide` says more of the same, `name`
only names, one a line, for `$(...)`. Nothing is ever coloured.
"""

import argparse
import json
from collections.abc import Iterable

from midflight.errors import UsageError

FORMATS = ("wide", "json", "yaml", "name")


def add(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "-o", "--output", type=_format, default="", metavar="FORMAT", help=" | ".join(FORMATS)
    )


def _format(text: str) -> str:
    if text and text not in FORMATS:
        raise UsageError(f"unknown output format,only support:[{'|'.join(FORMATS)}]")
    return text


def data(format: str, value: object, names: Iterable[str]) -> bool:
    """Print it in the format of a machine; False if the format is one for people."""
    if format == "json":
        print(json.dumps(value, indent=2, ensure_ascii=False))
    elif format == "yaml":
        print(as_yaml(value), end="")
    elif format == "name":
        print("".join(f"{name}\n" for name in names), end="")
    else:
        return False
    return True


def as_yaml(value: object) -> str:
    import yaml  # takes as long to load as all the rest

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000)
    return text
