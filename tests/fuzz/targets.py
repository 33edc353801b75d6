"""Everything that reads bytes of others, as functions that may only fail with our own errors.

A target takes any bytes. It returns, or raises a MidflightError with words in it; whatever else it
raises is a fault. `SEEDS` are good inputs, from which `mutate` makes ones that are nearly good.
"""

import contextlib
import functools
import json
import random
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from midflight import terminal
from midflight.cli import job_file
from midflight.coordinator.core.state import initial
from midflight.coordinator.saved_state import FORMAT, Saved, read, written
from midflight.errors import MidflightError
from midflight.flight import records, report, summary
from midflight.flight.plan import plan
from midflight.flight.svg import draw
from midflight.printable import printable
from midflight.protocol import codec
from midflight.protocol import messages as say
from midflight.protocol.handshake import VERSION, check_hello
from midflight.protocol.job import JobSpec
from midflight.protocol.messages import REGISTRY
from midflight.protocol.wire import SyncWire, decode_body, encode_frame, split_address
from midflight.protocol.world import Member, World
from midflight.run.hosts import parse_listing
from midflight.runtime.data import audit
from midflight.store import kubernetes_document
from midflight.store.etcd_address import parse_etcd_url
from tests.fuzz import api, objects, peers

CORPUS = Path(__file__).with_name("corpus")
SECRET = b"secret"
STATE = initial(JobSpec("job", ("sh",), 2, 1, 4), 10.0)
WORLD = World(3, (Member("m0", "h0", 0, "10.0.0.1"), Member("m1", "h1", 0, "10.0.0.2")))


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    try:
        yield
    except MidflightError as error:
        assert str(error), "an error without words"
        assert len(str(error)) < 4000, "an error as long as its cause"


def frame(data: bytes) -> None:
    with own_errors():
        decode_body(data)


def stream(data: bytes) -> None:
    """What a stranger sends before the handshake is done."""
    here, there = socket.socketpair()
    with here, there, own_errors():
        here.settimeout(1.0)
        there.sendall(data[: 1 << 16])
        there.shutdown(socket.SHUT_WR)
        wire = SyncWire(here)
        while True:
            wire.receive()


def greeting(data: bytes) -> None:
    with own_errors():
        message = decode_body(data)
        check_hello(message, say.Challenge(VERSION, "nonce"), SECRET)
        raise AssertionError("let in without the secret")


def message_fields(data: bytes) -> None:
    """Any JSON as the body of every message."""
    with own_errors():
        value = codec.loads(data)
        for kind in REGISTRY.values():
            with own_errors():
                assert codec.decode(kind, codec.encode(codec.decode(kind, value))) is not None


def saved_state(data: bytes) -> None:
    with own_errors():
        read(data, 1.0, "job", SECRET)


def unsealed_state(data: bytes) -> None:
    with own_errors():
        codec.decode(Saved, codec.loads(data))


def spec(data: bytes) -> None:
    with own_errors():
        codec.decode(JobSpec, codec.loads(data))


def job_files(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file, own_errors():
        file.write(data)
        file.flush()
        job_file.read(file.name)


def job_object(data: bytes) -> None:
    with own_errors():
        objects.job(data)


def scale_object(data: bytes) -> None:
    with own_errors():
        objects.scale_object(data)


def job_status(data: bytes) -> None:
    with own_errors():
        objects.job_status(data)


def http_request(data: bytes) -> None:
    assert api.status_of(data) != 500, "a mistake of the server's own"


def checkpoint(data: bytes) -> None:
    try:
        import torch
    except ImportError:
        return
    from midflight.runtime.state import checkpoint
    from midflight.runtime.state.holdings import Holdings

    with tempfile.NamedTemporaryFile() as file, own_errors():
        file.write(data)
        file.flush()
        checkpoint.load_into(Path(file.name), Holdings({"model": torch.nn.Linear(2, 2)}))


def ledger(data: bytes) -> None:
    text = data.decode(errors="replace")
    with own_errors():
        records, _ = audit.parse("m0", text)
        audit.parse_comparisons("m0", text)
        audit.judge([record for record in records if abs(record.epoch) < 100])


def config_map(data: bytes) -> None:
    value: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(data)
    if isinstance(value, dict):
        with own_errors():
            kubernetes_document.read(value, "here")


def addresses(data: bytes) -> None:
    text = data.decode(errors="replace")
    for reader in (split_address, parse_etcd_url, lambda listing: parse_listing(listing, 1)):
        with own_errors():
            reader(text)


def shown(data: bytes) -> None:
    """Nothing but colours commands the terminal."""
    text = printable(data.decode(errors="replace"))
    assert "\x1b" not in text and "\x9b" not in text and "\r" not in text
    half = len(data) // 2
    log = b"".join(terminal.LogFilter().pass_on(iter((data[:half], data[half:])))).decode()
    assert "\x1b" not in terminal._COLOUR.sub("", log)


def flight_log(data: bytes) -> None:
    """The record of a run: whatever is left of it can be drawn, and is XML."""
    parsed = records.parse(data.decode("ascii", "replace").split("\n"))
    found = plan(parsed)
    ElementTree.fromstring(draw(found))
    summary.lines(found)
    report.render(parsed).encode()


TARGETS: dict[str, Callable[[bytes], None]] = {
    function.__name__: function
    for function in (
        frame,
        stream,
        greeting,
        message_fields,
        saved_state,
        unsealed_state,
        spec,
        job_files,
        job_object,
        scale_object,
        job_status,
        http_request,
        checkpoint,
        ledger,
        flight_log,
        config_map,
        addresses,
        shown,
        *peers.TARGETS,
    )
}


@functools.cache
def corpus(target: str = "") -> tuple[bytes, ...]:
    """Good inputs of a reader, and those that have broken it before; of all if it is ""."""
    paths = sorted(CORPUS.glob(f"{target}-*" if target else "*"))
    return tuple(path.read_bytes() for path in paths)


def choose(target: str, good: list[bytes], chance: random.Random) -> bytes:
    """An input: every other one made of what is this very reader's, if there is something."""
    own = corpus(target)
    return mutate(chance.choice(own if own and chance.random() < 0.5 else good), chance)


def seeds() -> list[bytes]:
    """Good inputs for some reader or other, and those that have broken something before."""
    hello = say.Hello(VERSION, "agent", "h0", "nonce", "proof", "run")
    order = say.StartMember("m0", 0, ("sh",), "run", 60.0, 30.0, "", {"RANK": "0"})
    said = (hello, order, say.Form(WORLD), say.Output("m0", "stdout", ("line",), 1.5))
    frames = [encode_frame(message) for message in said]
    return [
        *frames,
        *(each[4:] for each in frames),
        b"".join(frames),
        written(STATE, 1.0, "job", SECRET),
        codec.dumps(Saved(FORMAT, 1.0, 2.0, STATE)),
        codec.dumps(STATE.spec),
        b"name: job\nimage: python\nworkers: 2\nenv:\n  A: b\ncommand: sh train.sh\n",
        _OBJECT,
        b'{"step":1,"epoch":0,"start":0,"stop":8,"generation":1,"rank":0,"size":1,"own":8,"crc":1}\n',
        b'{"compared":"enter","generation":1,"progress":[1,2,3],"digest":"a.b","differed":""}\n',
        json.dumps(
            {"data": {kubernetes_document.INDEX: _INDEX}, "binaryData": {"a": "eA=="}}
        ).encode(),
        b"etcds://me:word@[::1]:2379,host:1/prefix?ca=a&cert=b&key=c",
        b"h0 slots=2\nh1:4\n# no\n",
        b"\x1b[31mred\x1b[0m \x1b]0;title\x07\r\n",
        *corpus(),
    ]


_INDEX = '{"format":1,"revision":3,"entries":{"a":[2,0]},"leases":{"1":[2.0,1]},"receipts":{}}'
_OBJECT = json.dumps(
    {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "job", "namespace": "default", "uid": "u", "annotations": {}},
        "spec": {
            "etReplicaSpecs": {
                "launcher": {"replicas": 1, "template": {"spec": {"containers": [{"name": "a"}]}}},
                "worker": {"replicas": 2, "minReplicas": 1, "maxReplicas": 4, "template": {}},
            }
        },
    }
).encode()
_WORDS = (b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"-1", b"1e999", b"\\ud800")
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A few changes, each of a kind that readers tend to stumble over."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(made))
        match chance.randrange(6):
            case 0:
                made[at : at + chance.randint(0, 8)] = b""
            case 1:
                made[at:at] = chance.choice(_WORDS) * chance.choice((1, 1, 1, 50))
            case 2:
                made[at : at + 1] = bytes([chance.randrange(256)])
            case 3:
                made[at : at + 4] = struct.pack(">I", chance.choice(_NUMBERS))
            case 4:
                end = min(len(made), at + chance.randint(0, 64))
                made[at:at] = made[at:end]
            case _:
                del made[at:]
    return bytes(made)
