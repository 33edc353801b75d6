"""What must hold after every event, whatever the order: checked by the scenario as it goes by."""

from midflight.controller import commands as do
from midflight.controller import events, roster
from midflight.controller.deadlines import deadlines_of
from midflight.controller.state import OPEN, Cluster, Job, Progress, Stage


class Promises:
    def check(
        self,
        before: Cluster,
        event: events.Event,
        after: Cluster,
        records: tuple[do.Record, ...],
    ) -> None:
        no_device_twice(after)
        for record in records:
            if record.key:  # a node's record has none
                assert record.key in before.jobs or record.key in after.jobs
        deadlines_lie_ahead(event, after)
        what_is_active_is_known(after)
        for key, job in after.jobs.items():
            sizes_stay_in_bounds(job)
            phases_are_true(job)
            who_is_held_does_not_run(job)
            if (former := before.jobs.get(key)) is not None:
                ends_do_not_move(former, job)

    def check_orders(self, cluster: Cluster, given: list[do.Order | do.AskResize]) -> None:
        for order in given:
            job = cluster.jobs[order.key]
            if isinstance(order, do.StartInstance):
                assert job.instances[order.instance].attempt == order.attempt


def no_device_twice(cluster: Cluster) -> None:
    held: set[tuple[str, int]] = set()
    for job in cluster.jobs.values():
        for instance in job.instances.values():
            if not roster.holds(instance):
                continue
            assert len(instance.devices) == instance.gpus
            for device in instance.devices:
                assert (instance.node, device) not in held, f"{instance.name} got a used device"
                held.add((instance.node, device))


def next_deadline(cluster: Cluster) -> float | None:
    """The earliest of all jobs, None if there is none."""
    keys = cluster.jobs if cluster.active is None else cluster.active
    return min((at for key in keys for at in deadlines_of(cluster.jobs[key])), default=None)


def deadlines_lie_ahead(event: events.Event, cluster: Cluster) -> None:
    if isinstance(event, events.TimePassed | events.ServerStarted):
        deadline = next_deadline(cluster)
        assert deadline is None or deadline > event.at


def what_is_active_is_known(cluster: Cluster) -> None:
    if cluster.active is not None:
        assert cluster.active == {k for k, job in cluster.jobs.items() if roster.is_active(job)}


def sizes_stay_in_bounds(job: Job) -> None:
    assert job.spec.least <= job.wanted <= job.spec.most
    assert len(roster.staying(job)) <= job.spec.most
    running = [
        o for o in job.operations if o.progress in OPEN and o.progress is not Progress.QUEUED
    ]
    assert len(running) <= 1
    for operation in running:
        assert job.spec.least <= operation.target <= job.spec.most


def phases_are_true(job: Job) -> None:
    if job.finished:
        assert job.ended_at is not None
        assert not [o for o in job.operations if o.progress in OPEN]
        assert Stage.PENDING not in {i.stage for i in job.instances.values()}
    else:
        assert job.ended_at is None


def who_is_held_does_not_run(job: Job) -> None:
    if job.held and not job.finished:
        stages = {instance.stage for instance in job.instances.values()}
        assert not stages & {Stage.STARTING, Stage.RUNNING}


def ends_do_not_move(before: Job, after: Job) -> None:
    if before.uid == after.uid and before.finished:
        assert after.phase is before.phase
        assert after.ended_at == before.ended_at
        assert after.started_at == before.started_at
