"""What HOROVOD_* variables say of the engine, read once."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    fusion_threshold: int = 128 << 20  # bytes
    stall_warning: float = 60.0  # seconds; 0: never
    stall_shutdown: float = 0.0  # seconds; 0: never
    timeline: str = ""  # a file; "": none

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        off = env.get("HOROVOD_STALL_CHECK_DISABLE", "") not in ("", "0")
        return cls(
            fusion_threshold=int(_number(env, "HOROVOD_FUSION_THRESHOLD", 128 << 20)),
            stall_warning=0 if off else _number(env, "HOROVOD_STALL_CHECK_TIME_SECONDS", 60.0),
            stall_shutdown=_number(env, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0.0),
            timeline=env.get("HOROVOD_TIMELINE", ""),
        )


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    """What Horovod does with a number that is none: it takes the default."""
    try:
        return max(0.0, float(env.get(name, default)))
    except ValueError:
        return default
