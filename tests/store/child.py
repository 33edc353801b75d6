"""What another process does to a store in these tests: `python child.py VERB URL [ARGUMENT...]`."""

import sys
from collections.abc import Callable

from midflight.errors import Conflict
from midflight.store import Store, open_store


def increment(store: Store, key: str, times: str) -> None:
    """Adds one to a number, `times` times, against whoever else does."""
    for _ in range(int(times)):
        add_one(store, key)


def add_one(store: Store, key: str) -> None:
    while True:
        entry = store.get(key)
        value, version = (int(entry.value), entry.version) if entry else (0, 0)
        try:
            store.put(key, str(value + 1).encode(), expect=version)
        except Conflict:
            continue
        return


def write(store: Store, prefix: str) -> None:
    """Writes one key after the other, and says so, until it is killed."""
    number = 0
    while True:
        store.put(f"{prefix}{number}", str(number).encode(), expect=0)
        print(number, flush=True)
        number += 1


def hold(store: Store, key: str) -> None:
    """Keeps a leased key until it is killed."""
    lease = store.lease(1)
    store.put(key, b"mine", expect=0, lease=lease)
    print("held", flush=True)
    while sys.stdin.read(1):
        lease.renew()


def look(store: Store, key: str) -> None:
    print(store.get(key), flush=True)


VERBS: dict[str, Callable[..., None]] = {
    verb.__name__: verb for verb in (increment, write, hold, look)
}

if __name__ == "__main__":
    _, name, url, *arguments = sys.argv
    with open_store(url, patience=30) as opened:
        VERBS[name](opened, *arguments)
