"""The flags that every verb takes, before the verb or after it: namespace, cluster, looks.

`take` reads those in front of the verb and `use` makes them the defaults; a verb's own parser has
them too (`add`), and `note` is called with what it read. Where no namespace is named, it is the one
of the chosen cluster. A flag without a use here is taken, and said to be ignored at level debug.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

from midflight.arguments import offer
from midflight.cli import contexts, messages, screen
from midflight.controller.spec import DEFAULT_NAMESPACE
from midflight.errors import UsageError


@dataclass(frozen=True)
class Common:
    namespace: str = ""  # nothing was said
    loglevel: str = "info"
    arena_namespace: str = ""
    color: str = "auto"
    config: str = ""  # a kubeconfig: the verb is about its cluster


_FLAGS = {
    "-n": "namespace",
    "--namespace": "namespace",
    "--loglevel": "loglevel",
    "--arena-namespace": "arena_namespace",
    "--color": "color",
    "--config": "config",
}
_used = Common()
TITLE = "common flags"


def take(argv: Sequence[str]) -> tuple[Common, list[str]]:
    """The common flags that stand in front, and the rest: from the verb on, nothing is touched."""
    found: dict[str, str] = {}
    rest = list(argv)
    while rest:
        flag, equals, value = rest[0].partition("=")
        if flag not in _FLAGS:
            break
        del rest[0]
        if not equals:
            if not rest:
                raise UsageError(f"flag needs an argument: {flag}")
            value = rest.pop(0)
        found[_FLAGS[flag]] = value
    return Common(**found), rest


def use(common: Common) -> None:
    """Make these the defaults of the verb that follows."""
    global _used
    _used = common
    messages.set_level(common.loglevel)
    screen.choose(common.color)


def config() -> str:
    """The kubeconfig that was named, "" if none was."""
    return _used.config


def take_more(argv: Sequence[str]) -> list[str]:
    """For verbs with a word of their own first: what stands before it counts as well."""
    more, rest = take(argv)
    usual = Common()
    use(
        Common(
            more.namespace or _used.namespace,
            more.loglevel if more.loglevel != usual.loglevel else _used.loglevel,
            more.arena_namespace or _used.arena_namespace,
            more.color if more.color != usual.color else _used.color,
            more.config or _used.config,
        )
    )
    return rest


def add(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group(TITLE).add_argument
    add(
        "-n",
        "--namespace",
        default=_used.namespace,
        metavar="NAME",
        help=f"namespace of the job (default {DEFAULT_NAMESPACE}, or the cluster context's)",
    )
    level = add(
        "--loglevel",
        default=_used.loglevel,
        metavar="LEVEL",
        help="lowest level of messages: debug, info, warn or error (default %(default)s)",
    )
    offer(level, messages.LEVELS)
    add(
        "--color",
        default=_used.color,
        choices=screen.CHOICES,
        help="whether statuses have colours (default %(default)s: on a terminal)",
    )
    add("--arena-namespace", default=_used.arena_namespace, help=argparse.SUPPRESS)
    add(
        "--config",
        default=_used.config,
        metavar="FILE",
        help="kubeconfig of the cluster to use (default: see `midflight context`)",
    )


def note(options: argparse.Namespace) -> None:
    """What was read after the verb counts; `said_namespace` is "" where nothing was said."""
    global _used
    _used = replace(_used, config=options.config)
    options.said_namespace = options.namespace
    options.namespace = options.namespace or contexts.namespace(options.config)
    messages.set_level(options.loglevel)
    screen.choose(options.color)
    if options.arena_namespace:
        messages.debug("--arena-namespace is ignored: nothing here is looked for in a namespace")
