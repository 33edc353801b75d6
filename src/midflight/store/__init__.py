"""Durable compare-and-set with watch and leases: the one place where shared state lives.

`interface.py` says what a store promises, `urls.py` turns a URL into one. `embedded.py` keeps it
in a SQLite file on this machine, `etcd.py` in an etcd cluster; the same tests run on both. Open a
store after a fork, not before: neither files nor sockets of it may be shared with a child.
"""

from midflight.store.interface import MAX_VALUE, Entry, Lease, Snapshot, Store
from midflight.store.urls import open_store

__all__ = ["MAX_VALUE", "Entry", "Lease", "Snapshot", "Store", "open_store"]
