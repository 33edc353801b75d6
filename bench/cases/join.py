"""From the request for one more worker to that worker's first step, by standby and from cold."""

from bench.cases.pace import pace
from bench.cases.resize import grow, settle
from bench.processes import Run
from bench.rows import Row
from bench.systems import Shape, System


def run(system: System, shape: Shape) -> list[Row]:
    own = pace(shape.megabytes)
    with Run(system.name) as each:
        fleet = system.start(each, shape)
        settle(each, shape, own)
        _, _, seconds = grow(fleet, shape, own)
    metric = f"{'command' if shape.command else 'request'} to first step, "
    metric += "warm" if shape.warm else "cold"
    return [Row(system.name, "join", shape.megabytes, shape.workers, metric, seconds, "s")]
