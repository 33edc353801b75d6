"""What a training process has registered as its state, and what it was given before it had.

A newcomer may be in the world, and hold the others' state, before its script has built the model:
then the state waits here, by name, until the object is registered.
"""

from collections.abc import Mapping
from typing import Any, Protocol


class Held(Protocol):
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Any, /) -> Any: ...


class Register:
    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._received: dict[str, Any] = {}

    def hold(self, name: str, held: Held) -> None:
        self._held[name] = held
        if name in self._received:
            held.load_state_dict(self._received.pop(name))

    def state(self) -> dict[str, Any]:
        return {name: dict(held.state_dict()) for name, held in self._held.items()}

    def take_over(self, state: Mapping[str, Any]) -> None:
        for name, found in state.items():
            if name in self._held:
                self._held[name].load_state_dict(found)
            else:
                self._received[name] = found
