"""The picture of a flight plan: well formed whatever it shows, and true to the records."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from midflight.flight.amounts import clock, seconds, short, ticks, time_ticks
from midflight.flight.plan import Plan, plan
from midflight.flight.records import (
    Begun,
    Formed,
    Joined,
    Logged,
    Lost,
    Over,
    Paused,
    Place,
    Progress,
    Record,
)
from midflight.flight.svg import MOST_BANDS, MOST_MARKS, WIDTH, draw
from midflight.protocol.pause import Pause
from tests.flight.test_plan import FLIGHT, formed

SVG = "{http://www.w3.org/2000/svg}"
EVIL = '"><script>alert(1)</script>&amp;\x00\x1b[2J\u202e]]>\ufffe'


def drawn(found: Plan) -> ElementTree.Element:
    return ElementTree.fromstring(draw(found))


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


def test_the_picture_shows_size_members_throughput_loss_and_pauses() -> None:
    root = drawn(plan(FLIGHT))
    said = "\n".join(texts(root))
    for word in ("mine", "members", "samples/s", "loss", "m0", "h2", "lost: killed by SIGKILL"):
        assert word in said
    assert "0:10 in all, succeeded, 50 steps, 500 samples, 2 changes" in said
    assert "0:07 failure 3 to 2" in said
    assert [each for each in root.iter(f"{SVG}line") if each.get("class") == "failure"]


def test_each_band_and_mark_tells_more_when_it_is_pointed_at() -> None:
    titles = [title.text for title in drawn(plan(FLIGHT)).iter(f"{SVG}title")]
    assert "m1 on h1: 0:03 to 0:07, lost: killed by SIGKILL" in titles
    assert "resize: 2 to 3 at step 20, paused 30 ms" in titles
    assert "failure (m1: its process is gone): 3 to 2 at step 40, paused 500 ms" in titles


def test_text_from_elsewhere_stays_text() -> None:
    pause = Pause(0.1, 0.0, 0.0, 0.0, 0.01, 0.01)
    evil: list[Record] = [
        Begun(0.0, EVIL, 0.0, 1, 1, 1),
        Joined(0.0, EVIL, EVIL),
        Formed(1.0, 1, 0, EVIL, (Place(EVIL, EVIL), Place("m1", EVIL))),
        Logged(1.5, 1, 0, {EVIL: 1.0}),
        Lost(2.0, EVIL, EVIL, EVIL),
        Formed(2.0, 2, 0, EVIL, (Place("m1", EVIL),)),
        Paused(2.0, EVIL, 2, 0, planned=False, pause=pause),
        Over(3.0, 1, EVIL, EVIL),
    ]
    root = drawn(plan(evil))
    assert {each.tag for each in root.iter()} <= {
        f"{SVG}{name}"
        for name in ("svg", "title", "desc", "style", "g", "text", "rect", "line", "path")
    }
    assert any("<script>" in text for text in texts(root))
    assert any("\\x1b[2J\\u202e]]>" in text for text in texts(root))


def test_the_picture_refers_to_nothing_outside() -> None:
    text = draw(plan(FLIGHT))
    assert "href" not in text and "url(" not in text
    assert re.findall(r"https?://\S+", text) == ['http://www.w3.org/2000/svg"']


@pytest.mark.parametrize("count", [0, 1, 4, 6, 10, len(FLIGHT)])
def test_a_run_can_be_drawn_however_far_it_is(count: int) -> None:
    assert drawn(plan(FLIGHT[:count])).tag == f"{SVG}svg"


def test_everything_is_within_the_picture() -> None:
    jumped = [replace_time(record, record.t - 50.0) for record in FLIGHT[:6]] + FLIGHT[6:]
    root = drawn(plan(jumped))
    for each in root.iter(f"{SVG}rect"):
        x, width = float(each.get("x", "0")), float(each.get("width", "0"))
        assert x >= 0
        assert x + width <= WIDTH + 0.5


def replace_time(record: Record, t: float) -> Record:
    return type(record)(**{**vars(record), "t": t})


def test_a_large_and_long_run_makes_a_small_picture() -> None:
    names = [f"m{number}" for number in range(500)]
    big: list[Record] = [Formed(0.0, 1, 0, "start", tuple(Place(n, f"h{n[1:]}") for n in names))]
    big += [Progress(float(t), t * 10, t * 640) for t in range(1, 20_000)]
    big += [Logged(float(t), t * 10, 0, {"loss": 1 / t}) for t in range(1, 20_000)]
    text = draw(plan(big))
    assert f"and {500 - MOST_BANDS} more" in text
    assert len(text) < 150_000


def test_a_run_that_changes_all_the_time_makes_a_small_picture_that_shows_its_failures() -> None:
    restless: list[Record] = [formed(0.0, 1, 0, "start", "m0", "m1")]
    for number in range(1, 20_000):
        names = ("m0", "m1", "m2")[: 2 + number % 2]
        restless.append(formed(float(number), 1 + number, number, "request", *names))
    restless.append(formed(20_000.0, 20_001, 20_000, "failure", "m0"))
    text = draw(plan(restless))
    assert len(text) < 300_000
    titles = [title.text or "" for title in ElementTree.fromstring(text).iter(f"{SVG}title")]
    marked = [title for title in titles if title.startswith(("resize: ", "failure: "))]
    assert len({*marked}) == MOST_MARKS
    assert any(title.startswith("failure: 3 to 1") for title in marked)
    sizes = next(each for each in drawn(plan(restless)).iter(f"{SVG}path"))
    heights = {point.split()[1] for point in sizes.get("d", "")[1:].split(" L")}
    assert len(heights) == 3, "one, two and three members"


@pytest.mark.parametrize("value", [0.0, -3.0, 1e300, 1e-300])
def test_a_value_that_never_changes_is_a_line(value: float) -> None:
    same: list[Record] = [Logged(float(t), t, 0, {"loss": value}) for t in range(3)]
    assert drawn(plan(same)).tag == f"{SVG}svg"
    assert "nan" not in draw(plan(same))


def test_a_plan_without_anything_is_drawn() -> None:
    assert drawn(Plan()).tag == f"{SVG}svg"
    assert drawn(replace(Plan(), name="x", end=3.0)).tag == f"{SVG}svg"


def test_amounts_are_short() -> None:
    assert [seconds(value) for value in (0.0853, 1.24, 125.0, 3725.0)] == [
        *("85 ms", "1.2 s", "2:05", "1:02:05")
    ]
    assert [clock(value) for value in (0.0, 59.6, 3600.0)] == ["0:00", "1:00", "1:00:00"]
    assert [short(value) for value in (0.0251, 950.0, 12_500.0, 3.2e6, 4e12)] == [
        *("0.0251", "950", "12.5k", "3.2M", "4e+12")
    ]


def test_ticks_are_round_and_few() -> None:
    assert ticks(0.0, 47.0, 4) == [0.0, 20.0, 40.0]
    assert ticks(0.5, 0.5, 4) == [0.5]
    assert ticks(0.0, float("inf"), 4) == [0.0]
    assert time_ticks(3.0, 100.0, 10) == [10.0 * n for n in range(1, 11)]
    assert len(time_ticks(0.0, 40 * 86400.0, 10)) <= 11
