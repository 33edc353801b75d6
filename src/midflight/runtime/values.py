"""`job.state`: a dict whose entries are attributes, too."""

from typing import Any


class Values(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(map(str, self)) or "nothing yet"
            raise AttributeError(f"job.state holds no {name!r}; it holds {known}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]
