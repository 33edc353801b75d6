"""The report about a run: well formed whatever it shows, and true to the records."""

import re
from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from midflight.flight import page, svg
from midflight.flight.amounts import moment
from midflight.flight.canvas import LONGEST_TEXT
from midflight.flight.page import MOST_ROWS
from midflight.flight.records import (
    Asked,
    Begun,
    Ended,
    Formed,
    Joined,
    Logged,
    Lost,
    Over,
    Paused,
    Place,
    Progress,
    Record,
    Resumed,
    Settled,
)
from midflight.flight.report import render
from midflight.protocol.pause import Pause
from tests.flight.test_plan import FLIGHT, formed, paused

EVIL = '"><script>alert(1)</script><img src=x onerror=y>&amp;\x00\x1b[31m\u202e\n\r\x9b\ufffe'
VOID = {"meta"}
LOADING = {"href", "src", "srcset", "action", "data", "poster", "style", "xlink:href", "formaction"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def all(self, tag: str) -> list["Element"]:
        below = [found for child in self.children for found in child.all(tag)]
        return [self, *below] if self.tag == tag else below

    def everything(self) -> list["Element"]:
        return [self, *(each for child in self.children for each in child.everything())]

    @property
    def text(self) -> str:
        return "".join(self.texts)


class Reader(HTMLParser):
    """A tree; what is not nested as it should be is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("", {})
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert self._open == [self.root], "an element is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute of {tag} is there twice"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        for element in self._open[-1:]:
            element.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def read(records: list[Record]) -> Element:
    return Reader(render(records)).root


def rows(root: Element, section: str) -> list[list[str]]:
    """The cells of the table below the heading with that id."""
    for each in root.all("section"):
        if each.all("h2")[0].attributes["id"] == section:
            lines = each.all("tbody")[0].all("tr")
            return [[cell.text for cell in line.children] for line in lines]
    raise AssertionError(f"there is no section {section}")


def headings(root: Element) -> list[str]:
    return [each.text for each in root.everything() if re.fullmatch("h[1-6]", each.tag)]


def facts(root: Element) -> dict[str, str]:
    names, values = root.all("dt"), root.all("dd")
    return {name.text: value.text for name, value in zip(names, values, strict=True)}


def evil() -> list[Record]:
    pause = Pause(0.1, 0.0, 0.0, 0.0, 0.01, 0.01)
    return [
        Begun(0.0, EVIL, 1e9, 1, 1, 1),
        Joined(0.0, EVIL, EVIL),
        Joined(0.0, f"{EVIL}2", EVIL),
        Formed(1.0, 1, 0, EVIL, (Place(EVIL, EVIL), Place("m1", EVIL))),
        Asked(1.1, EVIL, EVIL),
        Settled(1.2, EVIL, False, EVIL),
        Progress(1.3, 1, 1),
        Logged(1.5, 1, 0, {EVIL: 1.0}),
        Lost(2.0, EVIL, EVIL, EVIL),
        Formed(2.0, 2, 0, "failure", (Place("m1", EVIL),)),
        Ended(2.0, EVIL, EVIL),
        Paused(2.0, EVIL, 2, 0, planned=False, pause=pause),
        Over(3.0, 1, EVIL, EVIL),
    ]


RECORDS = pytest.mark.parametrize("records", [FLIGHT, [], evil()], ids=["flight", "none", "evil"])


@RECORDS
def test_a_report_is_one_well_formed_page(records: list[Record]) -> None:
    text = render(records)
    assert text.startswith("<!DOCTYPE html>\n")
    root = Reader(text).root
    (html,) = root.children
    assert (html.tag, html.attributes["lang"]) == ("html", "en")
    assert [child.tag for child in html.children] == ["head", "body"]
    ids = [each.attributes["id"] for each in root.everything() if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    named = [each.attributes.get("aria-labelledby") for each in root.everything()]
    assert {each for each in named if each} <= set(ids)


@RECORDS
def test_a_report_loads_and_runs_nothing(records: list[Record]) -> None:
    text = render(records)
    elements = Reader(text).root.everything()
    assert not {"script", "link", "img", "a", "iframe", "form"} & {each.tag for each in elements}
    names = {name for each in elements for name in each.attributes}
    assert not LOADING & names
    assert not [name for name in names if name.startswith("on")]
    assert "url(" not in text and "@import" not in text
    assert set(re.findall(r"https?://[^\"]+", text)) == {"http://www.w3.org/2000/svg"}


@RECORDS
def test_the_policy_allows_the_styles_of_the_page_and_nothing_else(records: list[Record]) -> None:
    root = read(records)
    policies = [each.attributes for each in root.all("meta") if "http-equiv" in each.attributes]
    (policy,) = policies
    assert policy["http-equiv"] == "Content-Security-Policy"
    allowed = dict(part.strip().split(" ", 1) for part in policy["content"].split(";"))
    assert allowed.pop("default-src") == "'none'"
    styles = [each.text.encode() for each in root.all("style")]
    hashes = [f"'sha256-{b64encode(sha256(style).digest()).decode()}'" for style in styles]
    assert allowed.pop("style-src").split() == hashes
    assert set(allowed.values()) == {"'none'"}


def test_the_policy_comes_before_all_that_it_is_about() -> None:
    text = render(FLIGHT)
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<svg")


def test_headings_lead_through_the_report_in_order() -> None:
    root = read(FLIGHT)
    assert headings(root) == [
        *("mine", "Summary", "Flight plan", "Where the time went", "Changes", "Members", "Events")
    ]
    assert [each.text for each in root.all("h1")] == ["mine"]
    assert not [each for each in root.everything() if each.tag in ("h3", "h4", "h5", "h6")]


def test_the_report_has_the_name_of_the_run_and_says_when_it_ran() -> None:
    root = read(FLIGHT)
    assert root.all("head")[0].all("title")[0].text == "mine: report"
    assert root.all("header")[0].all("p")[0].text == (
        "It ran from 2001-09-09 01:46:40 to 2001-09-09 01:46:50 UTC (0:10)."
    )


def test_a_run_that_goes_on_is_said_to() -> None:
    root = read(FLIGHT[:-1])
    assert "the record ends at 2001-09-09 01:46:48 UTC (0:08)" in root.all("p")[0].text
    assert facts(root)["state"] == "no end is recorded"
    assert rows(root, "members")[0][-1] == "there when the record ends"


@pytest.mark.parametrize("at", [1e300, -1e300, float("nan"), 1e13])
def test_a_beginning_that_no_calendar_has_is_not_said(at: float) -> None:
    assert moment(at) is None
    root = read([Begun(0.0, "mine", at, 1, 1, 1), *FLIGHT[1:]])
    assert "When it began is not recorded. It took 0:10" in root.all("p")[0].text


def test_the_summary_says_what_was_done_and_what_it_cost() -> None:
    assert facts(read(FLIGHT)) == {
        "state": "succeeded",
        "done": "50 steps, 500 samples, 100 samples/s in 0:10",
        "goodput": "45 % (start 3.0 s, pauses 530 ms, end 2.0 s)",
        "members": "2 at first, 3 at most, 2 at last; 3 in all, on 3 hosts",
        "changes": "1 change by resize: paused 30 ms; 1 change by failure: paused 500 ms",
        "requests": "1 request not met",
        "last values": "loss not finite, lr 0.1",
    }
    assert [row[:3] for row in rows(read(FLIGHT), "time")] == [
        ["steps", "4.5 s", "44.7 %"],
        ["start", "3.0 s", "30.0 %"],
        ["pauses", "530 ms", "5.3 %"],
        ["end", "2.0 s", "20.0 %"],
    ]


def test_each_change_has_its_pause_phase_by_phase() -> None:
    pause = Pause(0.0102, 1.5, 90.0, 0.2, 0.04, 0.01)
    known = Paused(7.3, "m2", 3, 40, planned=False, pause=pause)
    found = rows(read([*FLIGHT[:-1], known]), "changes")
    assert found[0] == ["0:05", "resize", "2 to 3", "20", "30 ms", "30 ms", *["0 ms"] * 4, ""]
    assert found[1] == [
        *("0:07", "failure", "3 to 2", "40", "1:32", "10 ms", "1.5 s", "1:30", "200 ms", "30 ms"),
        "m1: its process is gone",
    ]


def test_a_pause_that_nobody_has_told_of_is_not_shown_as_none() -> None:
    found = rows(read([each for each in FLIGHT if not isinstance(each, Paused)]), "changes")
    assert found[0][4:] == ["not recorded", "", "", "", "", "", ""]


def test_each_member_has_its_host_its_times_and_the_reason_of_its_end() -> None:
    assert rows(read(FLIGHT), "members") == [
        ["m0", "h0", "0:02", "0:03", "", "the run ended"],
        ["m1", "h1", "0:02", "0:03", "0:07", "lost: killed by SIGKILL"],
        ["m2", "h2", "0:04", "0:05", "", "the run ended"],
    ]


def test_who_never_entered_the_world_is_a_member_too() -> None:
    found = rows(read([*FLIGHT[:6], Joined(4.9, "m7", "h7")]), "members")
    assert found[-1] == ["m7", "h7", "0:05", "", "", "never entered the world"]


def test_the_events_are_what_no_other_table_has() -> None:
    more: list[Record] = [
        Resumed(8.5),
        Asked(8.6, "r10", "5 members"),
        Settled(8.7, "r10", True, ""),
    ]
    assert rows(read([*FLIGHT[:-1], *more, FLIGHT[-1]]), "events") == [
        ["0:00", "run began", "", "2 members wanted, 1 to 4 allowed"],
        ["0:06", "request not met", "request r9", "no room"],
        ["0:07", "member lost", "m1 on h1", "m1: its process is gone"],
        ["0:07", "process ended", "m1", "killed by SIGKILL"],
        ["0:08", "run resumed", "", "another coordinator took it up"],
        ["0:09", "size requested", "request r10", "5 members"],
        ["0:09", "request met", "request r10", ""],
        ["0:10", "run ended", "", "succeeded"],
    ]


def test_tables_name_their_columns_and_their_rows() -> None:
    for table in read(FLIGHT).all("table"):
        assert table.all("caption")[0].text
        heads = table.all("thead")[0].all("th")
        assert heads and all(each.attributes["scope"] == "col" and each.text for each in heads)
        for row in table.all("tbody")[0].all("tr"):
            first, *others = row.children
            assert (first.tag, first.attributes["scope"]) == ("th", "row")
            assert {each.tag for each in others} == {"td"}
            assert len(row.children) == len(heads)


def test_what_is_wider_than_a_phone_scrolls_with_the_keyboard_and_has_a_name() -> None:
    root = read(FLIGHT)
    boxes = [each for each in root.all("div") if each.attributes.get("class") == "scroll"]
    names = {each.attributes["id"]: each.text for each in root.all("h2")}
    wide = [names[box.attributes["aria-labelledby"]] for box in boxes]
    assert wide == ["Flight plan", "Where the time went", "Changes", "Members", "Events"]
    assert all(box.attributes["tabindex"] == "0" for box in boxes)
    assert all(box.attributes["role"] == "region" for box in boxes)
    inside = [table for box in boxes for table in box.all("table")]
    assert len(inside) == len(root.all("table"))


def test_the_picture_has_a_title_and_a_description() -> None:
    (picture,) = read(FLIGHT).all("svg")
    title, description = picture.children[:2]
    assert (title.tag, title.text) == ("title", "The flight plan of mine")
    assert description.tag == "desc" and "50 steps, 500 samples, 2 changes" in description.text
    assert picture.attributes["role"] == "img"
    assert picture.attributes["aria-labelledby"] == title.attributes["id"]
    assert picture.attributes["aria-describedby"] == description.attributes["id"]


def test_the_page_suits_light_and_dark_screens_phones_and_paper() -> None:
    head = read(FLIGHT).all("head")[0]
    viewport = [e.attributes for e in head.all("meta") if e.attributes.get("name") == "viewport"]
    assert viewport[0]["content"] == "width=device-width, initial-scale=1"
    for style in (page.STYLE, svg.STYLE):
        assert "@media screen and (prefers-color-scheme:dark)" in style
        assert style.count("{") == style.count("}")
        assert not set("<&") & set(style), "it would not be the text that the policy allows"
    assert "@media print" in page.STYLE and "max-width:40rem" in page.STYLE


def test_the_styles_of_the_page_and_of_the_picture_keep_apart() -> None:
    classes = re.compile(r"\.([a-z]\w*)")
    assert not set(classes.findall(page.STYLE)) & set(classes.findall(svg.STYLE))


def test_text_from_elsewhere_stays_text_and_its_control_characters_are_visible() -> None:
    text = render(evil())
    root = Reader(text).root
    assert not root.all("script") and not root.all("img")
    shown = (
        '"><script>alert(1)</script><img src=x onerror=y>&amp;\\x00\\x1b[31m\\u202e\\n\\x0d\\u009b'
    )
    assert root.all("h1")[0].text.startswith(shown)
    assert all(row[0].startswith((shown, "m1")) for row in rows(root, "members"))
    assert rows(root, "changes")[0][-1].startswith(shown)
    assert "last values" in facts(root)
    assert not [char for char in text if ord(char) < 0x20 and char != "\n"]
    assert not {"\x7f", "\x9b", "\u202e", "\ufffe"} & set(text)
    text.encode()  # half a surrogate pair could not be


def test_a_record_of_nothing_is_a_report_too() -> None:
    root = read([])
    assert headings(root) == ["A run", "Summary", "Flight plan"]
    assert facts(root) == {"state": "no end is recorded"}


@pytest.mark.parametrize("count", range(1, len(FLIGHT)))
def test_a_run_can_be_reported_on_however_far_it_is(count: int) -> None:
    assert headings(read(FLIGHT[:count]))[0] == "mine"


def test_a_long_report_stays_small_and_says_what_it_leaves_out() -> None:
    names = [f"m{number}" for number in range(600)]
    long: list[Record] = [Begun(0.0, "long", 1e9, 600, 1, 600)]
    long += [Joined(0.0, name, f"h{name[1:]}") for name in names]
    long.append(formed(1.0, 1, 0, "start", *names))
    for number in range(1, 500):
        t = 40.0 * number
        long += [
            Lost(t, names[number], "h", "its process is gone " * 1000),
            formed(t, 1 + number, 400 * number, "failure", names[0], *names[number + 1 :]),
            paused(t + 1, 1 + number, 0.5),
        ]
    long += [Progress(float(t), t * 10, t * 640) for t in range(2, 20_000)]
    long += [Logged(float(t), t * 10, 0, {"loss": 1 / t}) for t in range(2, 20_000)]
    text = render(sorted(long, key=lambda record: record.t))
    assert len(text) < 800_000  # most of it reasons, each cut
    root = Reader(text).root
    for section, left_out in (("changes", 299), ("members", 400), ("events", 300)):
        found = rows(root, section)
        assert len(found) == MOST_ROWS + 1
        assert found[MOST_ROWS // 2] == [f"{left_out} more are not shown"]
        assert all(len(cell) <= LONGEST_TEXT + 1 for row in found for cell in row)
    assert rows(root, "members")[-1][0] == "m599"
