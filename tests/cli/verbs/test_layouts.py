"""What is printed, letter by letter: the layouts of the guides."""

import json

import pytest
import yaml

from tests.cli import canned
from tests.cli.fake_server import FakeServer
from tests.cli.program import Arena

pytestmark = pytest.mark.slow


def lines(*wanted: str) -> str:
    return "".join(f"{line}\n" for line in wanted)


def test_list_has_the_five_columns_of_the_guide_newest_first(
    fake: FakeServer, arena: Arena
) -> None:
    old = {"status": "SUCCEEDED", "type": "pytorchjob", "trainer": "PYTORCHJOB", "node": "N/A"}
    fake.jobs = [canned.job("older", createTime=canned.ago(23.5 * 3600), **old), canned.job()]
    done = arena("list")
    assert (done.code, done.err) == (0, "")
    assert done.out == lines(
        "NAME   STATUS     TRAINER     AGE  NODE",
        "demo   RUNNING    ETJOB       2m   127.0.1.1",
        "older  SUCCEEDED  PYTORCHJOB  23h  N/A",
    )


def test_list_wide_in_all_namespaces_adds_columns(fake: FakeServer, arena: Arena) -> None:
    fake.jobs = [canned.job(), canned.job("over", namespace="lab", status="FAILED")]
    assert arena("list", "-A", "-o", "wide").out == lines(
        "NAMESPACE  NAME  STATUS   TRAINER  AGE  NODE       WORKERS  DURATION  GPU(Requested)"
        "  GPU(Allocated)",
        "lab        over  FAILED   ETJOB    2m   N/A        2        2m        2               N/A",
        "default    demo  RUNNING  ETJOB    2m   127.0.1.1  2        2m        2               2",
    )
    assert fake.asked("GET", "/jobs")[0].query == {"namespace": "*"}


def test_list_of_no_jobs_is_the_header_and_an_empty_json_list(arena: Arena) -> None:
    assert arena("list").out == "NAME  STATUS  TRAINER  AGE  NODE\n"
    assert arena("list", "-o", "json").out == "[]\n"
    assert arena("list", "-o", "name").out == ""


def test_list_in_the_formats_for_machines_has_the_keys_of_the_views(
    fake: FakeServer, arena: Arena
) -> None:
    fake.jobs = [canned.job("one"), canned.job("two")]
    newest_first = [fake.jobs[1], fake.jobs[0]]
    assert json.loads(arena("list", "-o", "json").out) == newest_first
    assert yaml.safe_load(arena("list", "-o=yaml").out) == newest_first
    assert arena("list", "--output", "name").out == "two\none\n"


def test_get_has_the_layout_of_the_guide(fake: FakeServer, arena: Arena) -> None:
    fake.jobs = [canned.job(createTime="2026-03-26T10:00:00Z", endTime="2026-03-26T11:00:01Z")]
    done = arena("get", "demo", TZ="UTC")
    assert (done.code, done.err) == (0, "")
    assert done.out == lines(
        "Name:        demo",
        "Status:      RUNNING",
        "Namespace:   default",
        "Priority:    N/A",
        "Trainer:     ETJOB",
        "Duration:    2m",
        "",
        "Instances:",
        "  NAME           STATUS   AGE  IS_CHIEF  GPU(Requested)  NODE",
        "  ----           ------   ---  --------  --------------  ----",
        "  demo-launcher  Running  13s  true      0               node-1",
        "  demo-worker-0  Running  13s  false     1               node-1",
        "  demo-worker-1  Running  13s  false     1               node-1",
        "",
        "Workers:     2 (1 to 9)",
        "CreateTime:  2026-03-26 10:00:00",
        "EndTime:     2026-03-26 11:00:01",
    )


@pytest.mark.parametrize(
    ("arguments", "environment"), [(("-o", "classic"), {}), ((), {"MIDFLIGHT_LAYOUT": "classic"})]
)
def test_get_has_the_layout_of_the_older_guides_if_asked(
    arguments: tuple[str, ...], environment: dict[str, str], fake: FakeServer, arena: Arena
) -> None:
    fake.jobs = [canned.job(createTime="2026-03-26T10:00:00Z")]
    assert arena("get", "demo", *arguments, TZ="UTC", **environment).out == lines(
        "STATUS: RUNNING",
        "NAMESPACE: default",
        "PRIORITY: N/A",
        "TRAINING DURATION: 2m",
        "",
        "NAME  STATUS   TRAINER  AGE  INSTANCE       NODE",
        "demo  RUNNING  ETJOB    13s  demo-launcher  127.0.1.1",
        "demo  RUNNING  ETJOB    13s  demo-worker-0  127.0.1.1",
        "demo  RUNNING  ETJOB    13s  demo-worker-1  127.0.1.1",
        "",
        "Workers:     2 (1 to 9)",
        "CreateTime:  2026-03-26 10:00:00",
    )


def test_get_tells_why_a_job_waits_and_which_commit_it_has(fake: FakeServer, arena: Arena) -> None:
    fake.jobs = [
        canned.job(
            status="PENDING",
            reason="node-1 has 0 of 4 GPUs free",
            commit="0a1b2c3",
            minWorkers=2,
            maxWorkers=2,
            createTime="2026-03-26T10:00:00Z",
            instances=[canned.instance("demo-worker-0", status="Pending", node="N/A")],
        )
    ]
    assert arena("get", "demo", TZ="UTC").out.split("\n")[6:] == [
        "",
        "Instances:",
        "  NAME           STATUS   AGE  IS_CHIEF  GPU(Requested)  NODE",
        "  ----           ------   ---  --------  --------------  ----",
        "  demo-worker-0  Pending  13s  false     1               N/A",
        "",
        "Workers:     2",
        "CreateTime:  2026-03-26 10:00:00",
        "Commit:      0a1b2c3",
        "Reason:      node-1 has 0 of 4 GPUs free",
        "",
    ]


TRAINING = {
    "step": 1204,
    "stepsPerSecond": 19.84,
    "samplesPerSecond": 1980.4,
    "logged": {"loss": 0.2123, "a\x1b[2J\nb": None},
}
SHOWN = "step 1,204, 19.8 steps/s, 1.98k samples/s, loss 0.212, a\\x1b[2J b not finite"


def test_get_and_top_end_with_how_fast_a_job_trains(fake: FakeServer, arena: Arena) -> None:
    fake.jobs, fake.training = [canned.job()], TRAINING
    assert arena("get", "demo").out.endswith(f"\nTraining:    {SHOWN}\n")
    assert arena("top", "job", "demo").out.endswith(f"GPUs of Job: 2/2\nTraining: {SHOWN}\n")
    fake.jobs = [canned.job(status="SUCCEEDED")]
    assert "Training:" not in arena("get", "demo").out


def test_get_shows_operations_events_and_gpus(fake: FakeServer, arena: Arena) -> None:
    taken_back = {"progress": "failed", "message": "taken back: no room for 1 worker"}
    fake.jobs = [canned.job(operations=[canned.operation(), canned.operation(**taken_back)])]
    fake.events = [canned.event(), canned.event(kind="Warning", reason="Lost", message="is gone")]
    said = arena("get", "demo", "-eg").out.split("\n\n")
    assert said[3:] == [
        "Scale operations:\n"
        "  NAME             KIND      FROM  TO  STATUS  AGE  MESSAGE\n"
        "  ----             ----      ----  --  ------  ---  -------\n"
        "  demo-1599557124  scaleout  3     4   asked   1m   -\n"
        "  demo-1599557124  scaleout  3     4   failed  1m   taken back: no room for 1 worker",
        "Events:\n"
        "  SOURCE                  TYPE     AGE  MESSAGE\n"
        "  ------                  ----     ---  -------\n"
        "  instance/demo-worker-0  Normal   1m   [Started] runs as process 4711\n"
        "  instance/demo-worker-0  Warning  1m   [Lost] is gone",
        "GPUs:\n"
        "  INSTANCE       NODE(IP)   GPU(Requested)  GPU(IndexId)  GPU(DutyCycle)"
        "  GPU Memory(Used/Total)\n"
        "  --------       --------   --------------  ------------  --------------"
        "  ----------------------\n"
        "  demo-worker-0  127.0.1.1  1               0             N/A             N/A\n"
        "  demo-worker-1  127.0.1.1  1               0             N/A             N/A",
        "Allocated/Requested GPUs of Job: 2/2\n",
    ]


def test_get_shows_how_busy_gpus_are_where_that_is_known(fake: FakeServer, arena: Arena) -> None:
    fake.jobs = [canned.job()]
    fake.gpus = [{"index": 0, "dutyCycle": 37, "memoryUsed": 3 << 29, "memoryTotal": 16 << 30}]
    rows = [line.split() for line in arena("get", "demo", "-g").out.splitlines()]
    assert ["demo-worker-0", "127.0.1.1", "1", "0", "37%", "1.5GiB/16.0GiB"] in rows


def test_get_wide_tells_how_instances_ended(fake: FakeServer, arena: Arena) -> None:
    lost = canned.instance(
        "demo-worker-0", status="Error", exitCode=-9, restarts=2, reason="killed by signal 9"
    )
    fake.jobs = [canned.job(instances=[lost])]
    assert (
        "NODE    RESTARTS  EXIT  REASON\n"
        "  ----           ------  ---  --------  --------------  ----    --------  ----  ------\n"
        "  demo-worker-0  Error   13s  false     1               node-1  2         -9"
        "    killed by signal 9\n\nWorkers:     2 (1 to 9)\n"
    ) in arena("get", "demo", "-o", "wide").out


def test_top_node_has_the_layout_of_the_guide(fake: FakeServer, arena: Arena) -> None:
    fake.nodes = [canned.node("node-1", allocatedGPUs=3), canned.node("node-2")]
    assert arena("top", "node").out == lines(
        "NAME    IPADDRESS  ROLE    STATUS  GPU(Total)  GPU(Allocated)",
        "node-1  127.0.1.1  <none>  ready   4           3",
        "node-2  127.0.1.2  <none>  ready   4           0",
        "-" * 89,
        "Allocated/Total GPUs In Cluster:",
        "3/8 (37%)",
    )


def test_top_node_counts_what_can_be_used_when_a_node_is_lost(
    fake: FakeServer, arena: Arena
) -> None:
    fake.nodes = [
        canned.node("node-1", status="NotReady"),
        canned.node("node-2", status="Ready,SchedulingDisabled", allocatedGPUs=2),
    ]
    said = arena("top", "node").out
    assert "notReady" in said and "ready,SchedulingDisabled" in said
    assert said.endswith(
        "Allocated/Total GPUs In Cluster:\n2/8 (25%)\n"
        "Allocated/Total GPUs(Active) In Cluster:\n2/4 (50%)\n"
    )


def test_top_node_of_named_nodes_has_no_sum(fake: FakeServer, arena: Arena) -> None:
    fake.nodes = [canned.node("node-1"), canned.node("node-2")]
    assert arena("top", "node", "node-2").out.count("\n") == 2
    assert (
        "no node is named node-9; there are: node-1, node-2" in arena("top", "node", "node-9").err
    )


def test_top_node_details(fake: FakeServer, arena: Arena) -> None:
    fake.nodes = [canned.node("node-1", instances=["default/demo/demo-worker-0"])]
    assert arena("top", "node", "-d").out == lines(
        "Name:       node-1",
        "Status:     Ready",
        "Role:       <none>",
        "Address:    127.0.1.1",
        "Labels:     -",
        "Devices:    CPU slots",
        "Total:      4",
        "Allocated:  0",
        "",
        "Instances:",
        "  NAMESPACE  JOB   INSTANCE",
        "  ---------  ---   --------",
        "  default    demo  demo-worker-0",
    )


def test_top_job_is_sorted_by_what_is_asked_for(fake: FakeServer, arena: Arena) -> None:
    fake.jobs = [
        canned.job("small"),
        canned.job("large", requestGPUs=8, allocatedGPUs=6, status="SCALING"),
        canned.job("over", status="FAILED", requestGPUs=99),
    ]
    assert arena("top", "job").out == lines(
        "NAME   STATUS   TRAINER  AGE  GPU(Requested)  GPU(Allocated)  NODE",
        "large  SCALING  ETJOB    2m   8               6               127.0.1.1",
        "small  RUNNING  ETJOB    2m   2               2               127.0.1.1",
        "",
        "Total Allocated/Requested GPUs of Training Jobs: 8/10",
    )


def test_top_job_closely(fake: FakeServer, arena: Arena) -> None:
    fake.jobs = [canned.job()]
    said = arena("top", "job", "demo", "-i", "demo-worker-1").out
    assert said.startswith("Name:        demo\nStatus:      RUNNING\n")
    assert said.endswith(
        "\n\n"
        "NAME           STATUS   GPU(Request)  NODE    GPU(DeviceIndex)  GPU(DutyCycle)"
        "  GPU_MEMORY(Used/Total)\n"
        "demo-worker-1  Running  1             node-1  0                 N/A             N/A\n\n"
        "Allocated/Requested GPUs of Job: 2/2\n"
    )


def test_events_of_one_job_and_of_all(fake: FakeServer, arena: Arena) -> None:
    fake.jobs, fake.events = [canned.job()], [canned.event()]
    assert arena("events", "demo").out == lines(
        "SOURCE                  TYPE    AGE  MESSAGE",
        "instance/demo-worker-0  Normal  1m   [Started] runs as process 4711",
    )
    assert arena("events").out == lines(
        "NAMESPACE  JOB   SOURCE                  TYPE    AGE  MESSAGE",
        "default    demo  instance/demo-worker-0  Normal  1m   [Started] runs as process 4711",
    )


def test_node_list(arena: Arena) -> None:
    assert arena("node", "list").out == lines(
        "NAME    STATUS  ADDRESS    GPU(Total)  GPU(Allocated)  INSTANCES",
        "node-1  Ready   127.0.1.1  4           0               0",
    )


def test_data_list_is_empty_and_says_why(arena: Arena) -> None:
    done = arena("data", "list")
    assert done.out == "NAME  ACCESSMODE  DESCRIPTION  OWNER  AGE\n"
    assert done.err.startswith("INFO[0000] this machine has no volume claims")
