"""What pods tell the controller, and what they lack: by looking alone, however often."""

from dataclasses import replace

from midflight.controller import events, roster
from midflight.controller import orders as controller
from midflight.controller.commands import FetchCode, Order, StartInstance, StopInstance
from midflight.controller.state import Code, Job, Phase, Stage
from midflight.kubernetes.operator.observed import Observed, Pods, begins_anew, launcher_ip
from tests.kubernetes.jobs import NOW, instance, pod, pods_of, running

KEY = "default/demo"
WORKER = "demo-worker-1"


def news(job: Job, observed: Observed) -> list[events.Event]:
    return controller.news(job, observed.instances)


def orders(job: Job, observed: Observed) -> list[Order]:
    """With a hostfile that is as it should be."""
    return controller.orders(job, replace(observed.instances, hosts=roster.hosts(job)))


def next_look(job: Job, pods: Pods) -> float | None:
    return controller.next_look(job, Observed(NOW, pods).instances)


def gone(name: str, grace: float, **more: object) -> StopInstance:
    return StopInstance(KEY, name, 1, grace, **more)


def with_worker(stage: Stage, **more: object) -> object:
    job = running()
    return replace(job, instances={**job.instances, WORKER: instance(WORKER, stage, **more)})


def test_pods_that_run_as_they_should_are_no_news_and_need_nothing():
    job = running()
    assert news(job, Observed(NOW, pods_of(job))) == []
    assert orders(job, Observed(NOW, pods_of(job))) == []


def test_a_pod_that_runs_is_told_with_its_node():
    job = with_worker(Stage.STARTING)
    (told,) = news(job, Observed(NOW, pods_of(job)))
    assert told == events.InstanceStarted(NOW, job.key, WORKER, 1, 0, "node-1")


def test_a_pod_that_waits_says_why_once():
    job = with_worker(Stage.STARTING)
    waiting = pod(WORKER, "Pending", node="", waits_for="0/3 nodes are available")
    (told,) = news(job, Observed(NOW, pods_of(job, demo_worker_1=waiting)))
    assert told == events.InstanceDelayed(NOW, job.key, WORKER, 1, "0/3 nodes are available")
    known = with_worker(Stage.STARTING, reason="0/3 nodes are available")
    assert news(known, Observed(NOW, pods_of(known, demo_worker_1=waiting))) == []


def test_a_pod_that_is_gone_is_a_lost_instance_and_one_that_was_to_go_has_ended():
    job = running()
    pods = {name: each for name, each in pods_of(job).items() if name != WORKER}
    (told,) = news(job, Observed(NOW, pods))
    assert isinstance(told, events.InstanceLost)
    stopping = with_worker(Stage.STOPPING, stop_by=NOW)
    (told,) = news(stopping, Observed(NOW, pods))
    assert isinstance(told, events.InstanceEnded)


def test_a_pod_that_was_never_made_is_made_and_nothing_is_told():
    job = with_worker(Stage.STARTING)
    pods = {name: each for name, each in pods_of(job).items() if name != WORKER}
    assert news(job, Observed(NOW, pods)) == []
    assert orders(job, Observed(NOW, pods)) == [StartInstance(KEY, WORKER, 1)]


def test_an_evicted_pod_is_lost_and_a_failed_one_has_ended_with_its_code():
    job = running()
    evicted = pod(WORKER, "Failed", code=1, end="Evicted: low on memory", taken=True)
    (told,) = news(job, Observed(NOW, pods_of(job, demo_worker_1=evicted)))
    assert told == events.InstanceLost(NOW, job.key, WORKER, 1, "Evicted: low on memory")
    failed = pod(WORKER, "Failed", code=3)
    (told,) = news(job, Observed(NOW, pods_of(job, demo_worker_1=failed)))
    assert told == events.InstanceEnded(NOW, job.key, WORKER, 1, 3)


def test_a_pod_that_was_told_to_end_is_lost_even_if_its_program_ends_well():
    job = running()
    going = pod(WORKER, "Succeeded", code=0, told=True, ends_at=NOW + 30)
    (told,) = news(job, Observed(NOW, pods_of(job, demo_worker_1=going)))
    assert isinstance(told, events.InstanceLost)
    stopping = with_worker(Stage.STOPPING, stop_by=NOW)
    (told,) = news(stopping, Observed(NOW, pods_of(stopping, demo_worker_1=going)))
    assert told == events.InstanceEnded(NOW, job.key, WORKER, 1, -15)


def test_a_pod_that_was_told_to_end_says_why_where_the_cluster_does():
    job = running()
    why = "default-scheduler: preempting to accommodate a higher priority pod"
    told = pod(WORKER, "Failed", code=-15, ends_at=NOW, told=True, disruption=why)
    (lost,) = news(job, Observed(NOW, pods_of(job, demo_worker_1=told)))
    assert isinstance(lost, events.InstanceLost)
    assert lost.reason == f"lost with its pod, which was deleted: {why}"


def test_a_pod_too_short_lived_to_be_seen_running_has_started_and_ended():
    job = with_worker(Stage.STARTING)
    done = pod(WORKER, "Succeeded", code=0)
    told = news(job, Observed(NOW, pods_of(job, demo_worker_1=done)))
    assert [type(each) for each in told] == [events.InstanceStarted, events.InstanceEnded]


def test_the_pod_of_an_earlier_attempt_is_no_news_and_goes_before_the_next_is_made():
    job = with_worker(Stage.STARTING, attempt=2)
    old = pod(WORKER, "Failed", attempt=1, code=1)
    assert news(job, Observed(NOW, pods_of(job, demo_worker_1=old))) == []
    assert orders(job, Observed(NOW, pods_of(job, demo_worker_1=old))) == [gone(WORKER, 0.0)]
    leaving = replace(old, ends_at=NOW + 1)
    assert orders(job, Observed(NOW, pods_of(job, demo_worker_1=leaving))) == []


def test_a_pod_that_is_to_stop_has_the_time_that_is_left():
    job = with_worker(Stage.STOPPING, stop_by=NOW + 10)
    assert orders(job, Observed(NOW, pods_of(job))) == [gone(WORKER, 10.0)]
    assert orders(job, Observed(NOW + 60, pods_of(job))) == [gone(WORKER, 0.0)]


def test_a_pod_that_nobody_wants_goes():
    job = running()
    assert orders(job, Observed(NOW, pods_of(job, demo_worker_7=pod("demo-worker-7")))) == [
        gone("demo-worker-7", 0.0)
    ]


def test_a_pod_whose_node_does_not_answer_is_taken_off_the_list():
    job = running()
    stuck = pod(WORKER, ends_at=NOW)
    pods = pods_of(job, demo_worker_1=stuck)
    assert orders(job, Observed(NOW + 1, pods)) == []
    late = next_look(job, pods)
    assert late is not None
    assert orders(job, Observed(late, pods)) == [gone(WORKER, 0.0, force=True)]


def test_a_late_pod_that_does_not_go_is_looked_at_again_after_a_while_not_at_once():
    job = running()
    held = pods_of(job, demo_worker_1=pod(WORKER, ends_at=NOW - 3600))  # by somebody's finalizer
    assert next_look(job, held) == NOW + controller.LOOK_AGAIN


def test_a_pod_that_is_to_go_from_a_node_that_is_not_heard_of_is_not_waited_for():
    job = running()
    pods = pods_of(job, demo_worker_1=pod(WORKER, ends_at=NOW + 30))
    assert orders(job, Observed(NOW, pods)) == []
    assert orders(job, Observed(NOW, pods, {"node-1"})) == [gone(WORKER, 0.0, force=True)]
    assert orders(job, Observed(NOW, pods_of(job), {"node-1"})) == []  # the cluster decides when


def test_ended_pods_stay_for_their_logs_unless_the_policy_is_all():
    job = running(phase=Phase.SUCCEEDED)
    over = {name: replace(i, stage=Stage.COMPLETED) for name, i in job.instances.items()}
    job = replace(job, instances=over)
    pods = {name: pod(name, "Succeeded", code=0) for name in over}
    assert orders(job, Observed(NOW, pods)) == []
    strict = replace(job, spec=replace(job.spec, clean_policy="All"))
    assert {order.instance for order in orders(strict, Observed(NOW, pods))} == set(over)


def test_code_is_looked_up_by_one_pod_which_goes_when_it_is_known():
    job = running(phase=Phase.PENDING, instances={}, code=Code.FETCHING)
    assert orders(job, Observed(NOW, {})) == [FetchCode(KEY)]
    fetcher = replace(pod("demo-code"), role="code")
    assert orders(job, Observed(NOW, {"demo-code": fetcher})) == []
    known = replace(job, code=Code.READY)
    assert orders(known, Observed(NOW, {"demo-code": fetcher})) == [gone("demo-code", 0.0)]


def test_the_launcher_is_reached_only_while_it_runs():
    job = running()
    assert launcher_ip(job, pods_of(job)) == "127.9.0.1"
    waiting = pod("demo-launcher", "Pending", ip="")
    assert launcher_ip(job, pods_of(job, demo_launcher=waiting)) == ""


def test_at_the_end_of_a_job_pods_have_a_moment_to_end_by_themselves_and_keep_their_logs():
    job = with_worker(Stage.STOPPING, stop_by=NOW + 10)
    over = replace(job, phase=Phase.SUCCEEDED, ended_at=NOW)
    assert orders(over, Observed(NOW + 1, pods_of(over))) == []
    late = next_look(over, pods_of(over))
    assert late is not None
    assert orders(over, Observed(late, pods_of(over))) == [gone(WORKER, 4.0)]
    deleting = replace(over, deleting=True)
    assert orders(deleting, Observed(NOW + 1, pods_of(over))) == [gone(WORKER, 9.0)]


def test_a_launcher_that_follows_another_while_nothing_runs_begins_anew():
    made = [StartInstance(KEY, "demo-launcher", 2)]
    job = running()
    second = instance("demo-launcher", Stage.STARTING, attempt=2)
    anew = replace(job, phase=Phase.PENDING, instances={"demo-launcher": second})
    assert begins_anew(anew, {}, made)
    assert not begins_anew(anew, {}, [])
    assert not begins_anew(anew, {WORKER: pod(WORKER)}, made), "somebody trains still"
    assert not begins_anew(replace(anew, phase=Phase.RUNNING), {}, made), "it takes up the run"
    first = instance("demo-launcher", Stage.STARTING, attempt=1)
    assert not begins_anew(replace(anew, instances={"demo-launcher": first}), {}, made)
