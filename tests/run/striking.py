"""A fault of our own on purpose: a coordinator's decision raises once, when a test asks for it."""

from collections.abc import Callable

from tests.run.site import Site

CODE = """
import pathlib, sys
if {module!r} in sys.orig_argv:
    from midflight.coordinator import shell
    from midflight.coordinator.core import events
    sound = shell.handle
    def handle(state, event):
        order = pathlib.Path({order!r})
        if isinstance(event, events.Ticked) and order.exists():
            order.unlink()
            raise RuntimeError("struck on purpose")
        return sound(state, event)
    shell.handle = handle
"""


def make_strikable(site: Site, module: str) -> Callable[[], None]:
    """Call what it returns: the coordinator in a `python -m module` of this site raises once."""
    folder = site.folder / "striking"
    folder.mkdir()
    order = folder / "order"
    (folder / "sitecustomize.py").write_text(CODE.format(module=module, order=str(order)))
    site.env["PYTHONPATH"] = f"{folder}:{site.env['PYTHONPATH']}"
    return order.touch
