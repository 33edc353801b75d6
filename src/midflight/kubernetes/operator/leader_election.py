"""Leader election: one operator leads at a time, by a Lease that it renews.

A lease that has not changed for its own duration, by the watcher's clock, has expired. A holder
that cannot renew stops well before that, so that two never lead at once; `permit` refuses whatever
it would still write.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from midflight.backends.place import Deposed
from midflight.errors import Exists, MidflightError, NotFound
from midflight.kubernetes.api.async_connection import AsyncConnection
from midflight.kubernetes.api.errors import Changed

DURATION = 6.0  # seconds after its last renewal at which a lease is over
RENEW = 1.5  # between two renewals
SAFE = 4.0  # after its last renewal the holder counts on it for so long

log = logging.getLogger("midflight.operator")


class NotLeader(Deposed):
    """Another operator may lead by now."""


class LeaderElection:
    def __init__(
        self,
        api: AsyncConnection,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._namespace, self._name, self._identity = namespace, name, identity
        self._clock = clock
        self._renewed = float("-inf")  # when the request was sent that renewed it
        self._seen: tuple[str, float] = ("", 0.0)  # a version, and when it was first seen
        self.held = False

    def permit(self) -> None:
        """Raises once this operator cannot be sure to lead any more."""
        if not self.held or self._clock() - self._renewed > SAFE:
            raise NotLeader(f"{self._identity} no longer leads")

    async def acquire(self) -> None:
        """Until it leads."""
        while not self.held:
            try:
                await self._try()
            except (Changed, Exists):
                pass  # somebody else was faster
            except MidflightError as error:
                log.warning("the lease %s/%s: %s", self._namespace, self._name, error)
            if not self.held:
                await asyncio.sleep(RENEW / 2)

    async def keep(self) -> None:
        """As long as it leads; ends when it does not any more."""
        while self._clock() - self._renewed <= SAFE:
            await asyncio.sleep(RENEW)
            try:
                if not await self._try():
                    break
            except MidflightError as error:
                log.warning("the lease %s/%s: %s", self._namespace, self._name, error)
        self.held = False

    async def release(self) -> None:
        """Let the next one begin at once."""
        if not self.held:
            return
        self.held = False
        try:
            lease = await self._api.get("Lease", self._namespace, self._name)
            if lease["spec"].get("holderIdentity") == self._identity:
                await self._write(lease, "")
        except MidflightError as error:
            log.warning("the lease was not released: %s", error)

    async def _try(self) -> bool:
        sent = self._clock()
        try:
            lease = await self._api.get("Lease", self._namespace, self._name)
        except NotFound:
            await self._api.create(self._new())
        else:
            if not self._may_take(lease):
                self.held = False
                return False
            await self._write(lease, self._identity)
        self._renewed, self.held = sent, True
        return True

    def _may_take(self, lease: dict[str, Any]) -> bool:
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") in (None, "", self._identity):
            return True
        version = lease["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, self._clock())
        return self._clock() - self._seen[1] > float(spec.get("leaseDurationSeconds") or DURATION)

    async def _write(self, lease: dict[str, Any], holder: str) -> None:
        former = lease.get("spec") or {}
        same = former.get("holderIdentity") == holder
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": int(DURATION),
            "acquireTime": former.get("acquireTime") if same else _now(),
            "renewTime": _now(),
            "leaseTransitions": int(former.get("leaseTransitions") or 0) + (not same),
        }
        lease = {**lease, "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        await self._api.replace(lease)

    def _new(self) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(DURATION),
                "acquireTime": _now(),
                "renewTime": _now(),
                "leaseTransitions": 0,
            },
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
