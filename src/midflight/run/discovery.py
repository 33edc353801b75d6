"""The discovery script: asked once a second which hosts there are.

It runs through the shell, with a time limit, in a session of its own that is killed when the limit
is over. What it says is a host per line; what it says on stderr is shown when it fails. Whether a
failure matters is the caller's decision.
"""

import asyncio
import contextlib

from midflight import async_timeout
from midflight.deadlines import CHILD_KILLED
from midflight.errors import JobFailed, ScriptFailed, UsageError
from midflight.processes import kill_group
from midflight.run.hosts import Hosts, parse_listing
from midflight.run.processes import describe_end

_OUTPUT_LIMIT = 1 << 20


class Discovery:
    pause = 1.0  # seconds between two looks

    def __init__(self, script: str, default_slots: int, limit: float = 10.0) -> None:
        self._script = script
        self._default_slots = default_slots
        self._limit = limit

    async def look(self) -> Hosts:
        """The hosts of this moment; JobFailed, with the reason, if the script does not say."""
        process = await asyncio.create_subprocess_shell(
            self._script,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        reading = asyncio.ensure_future(
            asyncio.gather(_read(process, process.stdout), _read(process, process.stderr))
        )
        try:
            async with async_timeout.timeout(self._limit):
                stdout, stderr = await asyncio.shield(reading)
                code = await process.wait()
        except TimeoutError:
            raise self._failed(f"did not end within {self._limit:g} s") from None
        finally:
            kill_group(process.pid)
            with contextlib.suppress(TimeoutError):
                async with async_timeout.timeout(CHILD_KILLED):
                    await reading  # asyncio sees a process end only when its pipes are drained
                    await process.wait()
        return self._judge(code, stdout, stderr)

    def _judge(self, code: int, stdout: bytes, stderr: bytes) -> Hosts:
        if len(stdout) > _OUTPUT_LIMIT:
            raise self._failed(f"printed more than {_OUTPUT_LIMIT} bytes")
        if code:
            last = stderr.decode(errors="replace").strip().splitlines()
            what = describe_end(code) + (f": {last[-1]}" if last else "")
            raise ScriptFailed(self._script, code, what)
        try:
            return parse_listing(stdout.decode(), self._default_slots)
        except UnicodeDecodeError:
            raise self._failed("printed something that is not text") from None
        except UsageError as error:
            raise self._failed(f"printed something other than hosts: {error}") from None

    def _failed(self, what: str) -> JobFailed:
        return JobFailed(f"the host discovery script {self._script!r} {what}")


async def _read(process: asyncio.subprocess.Process, stream: asyncio.StreamReader | None) -> bytes:
    """To the end, which comes at once if it is too much."""
    assert stream is not None
    parts = bytearray()
    while part := await stream.read(1 << 16):
        if len(parts) <= _OUTPUT_LIMIT:
            parts += part
        else:
            kill_group(process.pid)
    return bytes(parts)
