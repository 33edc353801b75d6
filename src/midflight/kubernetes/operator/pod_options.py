"""Options for the pods of all jobs: what `operator install` takes and hands on to `operator run`.

What a job's own template or annotation says comes before any of these.
"""

import argparse

from midflight.arguments import count_from
from midflight.errors import UsageError
from midflight.kubernetes.manifests.flags import object_name, toleration
from midflight.kubernetes.pods import SECURITIES, PodDefaults
from midflight.quantities import quantity

_SECURITY, _LIMIT = "--pod-security", "--pod-limit"
_TOLERATION, _PULL_SECRET = "--pod-toleration", "--pod-pull-secret"
_MIN_AVAILABLE = "--pod-min-available"


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        _SECURITY,
        choices=SECURITIES,
        default=SECURITIES[0],
        help="what pods of jobs may do: restricted (default), baseline (the user and the file "
        "system are the image's), or as-written (what the template says, and no more)",
    )
    add(
        _LIMIT,
        action="append",
        default=[],
        metavar="NAME=QUANTITY",
        help="limit of each container of a job that has none of that name (repeatable)",
    )
    add(
        _TOLERATION,
        action="append",
        default=[],
        metavar="KEY[=VALUE][:EFFECT]",
        help="toleration of all pods of jobs (repeatable)",
    )
    add(
        _PULL_SECRET,
        action="append",
        default=[],
        metavar="SECRET",
        help="pull secret of all pods of jobs, in the job's namespace (repeatable)",
    )
    add(
        _MIN_AVAILABLE,
        type=count_from(0),
        metavar="N",
        help="workers of an elastic job that a drain leaves, at most (default its minReplicas)",
    )


def read(options: argparse.Namespace, runtime_image: str = "", node_loss: int = 30) -> PodDefaults:
    """Raises UsageError with the flag that is wrong."""
    return PodDefaults(
        runtime_image,
        node_loss,
        security=options.pod_security,
        limits=tuple(map(_limit, options.pod_limit)),
        tolerations=tuple(map(toleration, options.pod_toleration)),
        pull_secrets=tuple(object_name(_PULL_SECRET, each) for each in options.pod_pull_secret),
        min_available=options.pod_min_available,
    )


def words(options: argparse.Namespace) -> list[str]:
    """The same options again, for another command line; what is the default is left out."""
    read(options)
    security = [] if options.pod_security == SECURITIES[0] else [options.pod_security]
    least = options.pod_min_available
    given = {
        _SECURITY: security,
        _LIMIT: options.pod_limit,
        _TOLERATION: options.pod_toleration,
        _PULL_SECRET: options.pod_pull_secret,
        _MIN_AVAILABLE: [] if least is None else [least],
    }
    return [f"{flag}={value}" for flag, values in given.items() for value in values]


def _limit(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"{_LIMIT} is invalid: wanted NAME=QUANTITY, got {text!r}")
    quantity(value)
    return name, value
