"""`midflight operator run`: runs the operator until it is told to stop.

Exit codes: 0 told to stop, 1 it no longer leads or the cluster cannot be used (whoever runs it
starts it again), 2 the options are wrong.
"""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from midflight.errors import MidflightError, UsageError
from midflight.kubernetes.operator import pod_options
from midflight.kubernetes.operator.health import serve
from midflight.kubernetes.operator.manager import Manager, Settings
from midflight.monitoring.page_server import bind
from midflight.run.addresses import check_listen
from midflight.terminal import ErrorStream

NAMESPACE = "midflight-system"

log = logging.getLogger("midflight.operator")


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--lease-namespace", metavar="NS", help=f"of its lease and key (default {NAMESPACE})")
    add("--watch-namespace", metavar="NS", help="run the jobs of this one only (default: all)")
    add("--runtime-image", default="", metavar="IMAGE", help="brings Midflight into jobs' pods")
    add(
        "--node-loss",
        type=int,
        default=30,
        metavar="SECONDS",
        help="until pods on a node that does not answer are given up (default 30)",
    )
    pod_options.add_options(parser)
    add("--listen", metavar="HOST:PORT", help="for /healthz, /readyz and /metrics (default: none)")
    add("--identity", metavar="NAME", help="in the lease (default: host and process)")
    add("--verbose", action="store_true", help="print what Midflight is doing")


def main(options: argparse.Namespace, environ: Mapping[str, str] | None = None) -> int:
    """`options` as `add_options` has them, and `config`: a kubeconfig, or None."""
    environ = os.environ if environ is None else environ
    _log_to_stderr(options.verbose)
    try:
        settings = _settings(options, environ)
    except UsageError as error:
        print(f"midflight operator: {error}", file=sys.stderr)
        return 2
    try:
        return asyncio.run(_run(options.config or "", environ, settings))
    except MidflightError as error:
        log.error("%s", error)
        return 1


def _settings(options: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    listen = None
    if options.listen:
        host, _, port = check_listen(options.listen).rpartition(":")
        listen = (host, int(port))
    identity = (
        options.identity or environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"
    )
    return Settings(
        identity=identity,
        namespace=options.lease_namespace or environ.get("POD_NAMESPACE") or NAMESPACE,
        watched=options.watch_namespace or "*",
        pods=pod_options.read(options, options.runtime_image, options.node_loss),
        listen=listen,
    )


async def _run(config: str, environ: Mapping[str, str], settings: Settings) -> int:
    listener = bind(settings.listen) if settings.listen is not None else None
    client = _client(config, environ)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    operator = Manager(client, settings)
    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(operator.run()),
        asyncio.create_task(stop.wait()),
    ]
    if listener is not None:
        log.info("listens on %s:%d", *listener.getsockname()[:2])
        serving = serve(listener, operator.metrics, operator.ready)
        tasks.append(asyncio.create_task(serving))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and not stop.is_set():
                task.result()
        log.info("told to stop; jobs keep running")
        return 0
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await operator.leadership.release()
        await client.close()


def _client(config: str, environ: Mapping[str, str]) -> Any:
    """With a kubeconfig that is named, else as the pod that this is, else with the usual one."""
    import httpx2
    from lightkube import AsyncClient
    from lightkube.core.exceptions import ConfigError

    from midflight.kubernetes.api import kubeconfig
    from midflight.kubernetes.api.async_connection import SECONDS

    if not config and (kubeconfig.ACCOUNT / "token").is_file():
        settings = kubeconfig.in_pod(environ)
    else:
        named = config or environ.get("KUBECONFIG", "")
        settings = kubeconfig.read(kubeconfig.files(named, Path.home()))
    try:
        single = kubeconfig.for_lightkube(settings)
        timeout = httpx2.Timeout(SECONDS)
        return AsyncClient(single, timeout=timeout, field_manager="midflight-operator")
    except (ConfigError, OSError, ValueError) as error:
        raise UsageError(f"{settings.source} cannot be used: {error}") from None


def _log_to_stderr(verbose: bool) -> None:
    handler = logging.StreamHandler(ErrorStream())  # objects of tenants are quoted there
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger("midflight")
    root.handlers = [handler]
    root.propagate = False
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
