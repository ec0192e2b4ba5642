"""The picture of one machine, in characters and as SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.capacity.scenarios import GUIDE, scenario, scenarios, step

from penstock.capacity.estimate import estimate
from penstock.capacity.figures import byte_rate, byte_size, length, number
from penstock.capacity.load import steady
from penstock.capacity.picture import as_lines, picture_of
from penstock.capacity.scenario import Scenario
from penstock.capacity.svg import as_svg
from penstock.frontends.scenario import read_scenario

_SVG = "{http://www.w3.org/2000/svg}"


def test_the_guides_machine_is_drawn_as_the_guide_draws_it() -> None:
    read = read_scenario(GUIDE)
    lines = as_lines(picture_of(estimate(read.scenario, read.profile)))

    assert lines == [
        "                         ┌── one of 5 machines ───┐",
        "       source 400 MB/s ━▶│     200,000 rows/s     ├━▶ shuffle      320 MB/s",
        "      shuffle 320 MB/s ━▶│         window         ├━▶ window emit   67 MB/s",
        " state access  40 MB/s ━▶│     20 GB of state     ├━▶ state access  40 MB/s",
        "                         │ disks over the network ├━▶ checkpoints  333 MB/s",
        "                         └────────────────────────┘",
        "           in 760 MB/s    ████████████░░░░░░░░ 61% of 1,250 MB/s (10 Gbit/s)",
        "          out 760 MB/s    ████████████░░░░░░░░ 61% of 1,250 MB/s (10 Gbit/s)",
    ]


def test_a_machine_through_which_nothing_goes_is_drawn_too() -> None:
    little = estimate(scenario(roundTo="1 GB/s", machines={"count": 99, "network": "10 Gbit/s"}), steady(1.0))
    picture = picture_of(little)

    assert (picture.into, picture.out) == ((), ())
    assert as_lines(picture)[-1] == " out 0 MB/s    ░░░░░░░░░░░░░░░░░░░░ 0% of 1,250 MB/s (10 Gbit/s)"
    assert "Total In: 0 MB/s" in texts(as_svg(picture))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{_SVG}text")]


def test_the_svg_holds_the_figures_of_the_guide() -> None:
    read = read_scenario(GUIDE)
    found = texts(as_svg(picture_of(estimate(read.scenario, read.profile))))

    for figure in ("400 MB/s", "67 MB/s", "333 MB/s", "Total In: 760 MB/s", "Total Out: 760 MB/s", "20 GB of state"):
        assert found.count(figure) == 1, figure
    assert found.count("320 MB/s") == found.count("40 MB/s") == found.count("490 MB/s free") == 2
    assert found.count("61% of 1,250 MB/s (10 Gbit/s)") == 2


def test_what_a_card_cannot_carry_is_drawn_over_its_limit() -> None:
    slow = estimate(scenario(machines={"count": 5, "network": "1 Gbit/s"}), steady(1e6))
    svg = as_svg(picture_of(slow))

    assert "608% of 125 MB/s (1 Gbit/s)" in texts(svg)
    assert len(list(ElementTree.fromstring(svg).iter(f"{_SVG}line"))) == 2
    assert texts(svg).count("limit 125 MB/s") == 2


def test_names_of_steps_are_escaped() -> None:
    odd = estimate(scenario(steps={"<a & 'b'>": step()}), steady(1e6))

    assert "<a & 'b'>" in texts(as_svg(picture_of(odd)))


@given(scenarios(), st.integers(1, 10**8), st.integers(1, 50))
@settings(deadline=None)
def test_any_picture_is_well_formed_and_holds_its_figures(given_: Scenario, rate: int, machines: int) -> None:
    count = given_.machines.model_copy(update={"count": machines})
    answer = estimate(given_.model_copy(update={"machines": count}), steady(float(rate)))
    picture = picture_of(answer)
    svg = as_svg(picture)
    root = ElementTree.fromstring(svg)
    height = float(root.attrib["height"])

    found = texts(svg)
    for arrow in (*picture.into, *picture.out):
        assert arrow.name in found
        assert byte_rate(arrow.bytes) in found
    assert f"Total In: {byte_rate(picture.total_in)}" in found
    assert f"Total Out: {byte_rate(picture.total_out)}" in found
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    for bar in root.iter(f"{_SVG}rect"):
        assert 0 <= float(bar.attrib.get("y", 0)) + float(bar.attrib["height"]) <= height
    lines = as_lines(picture)
    assert (
        len({line.index("┐") for line in lines if "┐" in line} | {line.index("┘") for line in lines if "┘" in line})
        == 1
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(400e6, "400 MB/s"), (66_666_667, "66.7 MB/s"), (10_335e6, "10,335 MB/s"), (1500, "1.5 KB/s"), (0, "0 MB/s")],
)
def test_rates_are_told_in_megabytes(value: float, text: str) -> None:
    assert byte_rate(value) == text


def test_figures_in_words() -> None:
    assert (byte_size(20e9), byte_size(12)) == ("20 GB", "12 B")
    assert (number(0.694), number(99.95), number(1234567.8)) == ("0.69", "100", "1,234,568")
    assert (length(11_167.3), length(0.25), length(0), length(59.9)) == ("3 h 6 min", "250 ms", "0 s", "1 min")
