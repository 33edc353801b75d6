"""What a member asks for and what it is told to do: the words of the tally.

A request is one named collective of one member, with everything that has to agree among the
members. A response names requests that all members have made, to be carried out now, together.
"""

from dataclasses import dataclass

(
    ALLREDUCE,
    ALLGATHER,
    BROADCAST,
    ALLTOALL,
    REDUCESCATTER,
    BARRIER,
    JOIN,
    ADD_SET,
    REMOVE_SET,
    SHUTDOWN,
) = (
    "allreduce",
    "allgather",
    "broadcast",
    "alltoall",
    "reducescatter",
    "barrier",
    "join",
    "add_process_set",
    "remove_process_set",
    "shutdown",
)
GLOBAL_SET = 0
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Request:
    name: str
    kind: str
    shapes: tuple[Shape, ...] = ()  # several: a group, carried out together
    dtypes: tuple[str, ...] = ()
    device: str = "cpu"
    op: str = ""  # of a reduction: sum, average, min, max, product, adasum
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = -1  # of a broadcast
    splits: tuple[int, ...] = ()  # of an alltoall
    ranks: tuple[int, ...] = ()  # of a process set that is made or removed
    process_set: int = GLOBAL_SET
    problem: str = ""  # not empty: it cannot be done, for this reason, and all are to hear it


@dataclass(frozen=True)
class Response:
    names: tuple[str, ...]
    kind: str
    process_set: int = GLOBAL_SET
    error: str = ""  # not empty: it is not carried out, for this reason
    rows: tuple[tuple[int, ...], ...] = ()  # allgather: of each tensor, by rank
    splits: tuple[tuple[int, ...], ...] = ()  # alltoall: by rank
    last: int = -1  # join: who came last
    template: tuple[Request, ...] = ()  # for members that have joined: what to send zeros for
    number: int = 0  # of a new process set


@dataclass(frozen=True)
class Asked:
    """One frame to rank 0. What is asked for again and again is sent once, then by its number."""

    requests: tuple[Request, ...]
    kept: int = 0  # so many of them, the first, are to be remembered
    again: tuple[int, ...] = ()  # numbers of what was remembered, in the order in which it came


@dataclass(frozen=True)
class Told:
    """One frame from rank 0."""

    responses: tuple[Response, ...]


_MUST_AGREE = (
    ("kind", "operation"),
    ("dtypes", "data type"),
    ("device", "device"),
    ("op", "reduction op"),
    ("prescale", "prescale factor"),
    ("postscale", "postscale factor"),
    ("root", "root rank"),
    ("ranks", "process set"),
)


def disagreement(requests: dict[int, Request]) -> str:
    """Why this cannot be done: what is wrong with a request, or in what they differ; or ''."""
    problem = next((request.problem for request in requests.values() if request.problem), "")
    if problem:
        return problem
    (first_rank, first), *others = sorted(requests.items())
    for rank, other in others:
        for field, words in _MUST_AGREE:
            mine, theirs = getattr(first, field), getattr(other, field)
            if mine != theirs:
                return (
                    f"Mismatched {words} of '{first.name}': rank {first_rank} asked for "
                    f"{_shown(mine)}, rank {rank} for {_shown(theirs)}."
                )
        if _comparable(first) != _comparable(other):
            return (
                f"Mismatched {first.kind} tensor shapes of '{first.name}': rank {first_rank} sent "
                f"{_shapes(first)}, rank {rank} {_shapes(other)}."
            )
    return ""


def _comparable(request: Request) -> tuple[Shape, ...]:
    """The part of the shapes that has to agree: rows may differ where they are put together."""
    if request.kind in (ALLGATHER, ALLTOALL):
        return tuple(shape[1:] for shape in request.shapes)
    return request.shapes


def _shapes(request: Request) -> str:
    return ", ".join(str(list(shape)) for shape in request.shapes)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
