"""`job.state`: a view of a plain dict whose entries are attributes, too."""

from collections.abc import Iterator, MutableMapping
from typing import Any


class Values(MutableMapping[str, Any]):
    def __init__(self, plain: dict[str, Any]) -> None:
        object.__setattr__(self, "_plain", plain)

    def __getitem__(self, name: str) -> Any:
        return self._plain[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._plain[name] = value

    def __delitem__(self, name: str) -> None:
        del self._plain[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plain)

    def __len__(self) -> int:
        return len(self._plain)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._plain[name]
        except KeyError:
            known = ", ".join(map(str, self._plain)) or "nothing yet"
            raise AttributeError(f"job.state holds no {name!r}; it holds {known}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._plain[name] = value

    def __delattr__(self, name: str) -> None:
        del self._plain[name]

    def __repr__(self) -> str:
        return f"job.state({self._plain!r})"
