"""Every kind of change that the guide lists: run, change, carry over, run on; what is stored is what must be there."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.evolution.story import CLICKS, JOIN, LATEST, NATIVE, ROLLING, VIEWS, WINDOW, Row, Story
from tests.engine.running import table

from penstock.engine.statedir import read_identity
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.runner.upgrade import upgrade
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "changing-a-running-pipeline.md"
pytestmark = pytest.mark.timeout(900)

Looks = Callable[[Story, Sequence[Row]], None]
"""Looks at a story in the end, given the rows that came after the change."""


def complete(*names: str) -> Looks:
    """These tables hold what one version that saw all rows would have stored."""

    def look(story: Story, later: Sequence[Row]) -> None:
        story.check(*names)

    return look


def from_then_on(name: str, *names: str) -> Looks:
    """The first table knows only rows that came after the change; the others know all."""

    def look(story: Story, later: Sequence[Row]) -> None:
        story.check(*names)
        assert story.found(name) == story.wanted(name, later)

    return look


@dataclass(frozen=True)
class Version:
    """What `Story.write` takes."""

    steps: Mapping[str, str]
    sources: Sequence[str] = (VIEWS,)
    sinks: Mapping[str, str] | None = None
    extra: str = ""
    called: Mapping[str, str] = field(default_factory=dict)

    def write(self, story: Story) -> Path:
        return story.write(self.steps, self.sources, self.sinks, self.extra, self.called)


@dataclass(frozen=True)
class Case:
    """A row of the guide's table."""

    kind: str
    before: Version
    after: Version
    looks: Looks
    upgrade: bool = True
    """Whether the next run refuses to go on by itself."""
    lose: tuple[str, ...] = ()
    between: str = ""
    """SQL for the tables, as an operator would give them a new column."""


MOST = WINDOW.replace("total: sum(amount)", "total: sum(amount), most: max(amount)")
SPENT = ROLLING.replace("spent: sum(amount)", "spent: sum(amount), most: max(id)")


def look_at_most(story: Story, later: Sequence[Row]) -> None:
    """The new value knows the rows that came after the change."""
    story.check("per_minute")
    found: dict[tuple[str, int], int] = {}
    for row in later:
        place = (row.user, int(row.second // 60) * 60)
        found[place] = max(found.get(place, 0), row.amount)
    rows = table(story.project.folder / "out.db", "SELECT user, n, most FROM per_minute WHERE most IS NOT NULL")
    assert sorted(most for user, _, most in rows if user != "zzz") == sorted(found.values())


def look_at_columns(story: Story, later: Sequence[Row]) -> None:
    story.check("newest")
    rows = table(story.project.folder / "out.db", "SELECT id, double FROM newest WHERE user <> 'zzz'")
    twice = {row.id: row.amount * 2 for row in later}
    assert dict(rows) == {id: twice.get(id) for id, _ in rows}


def look_at_rows(story: Story, later: Sequence[Row]) -> None:
    """A new sink gets the rows that come after it is there, each once."""
    story.check("per_minute")
    rows = table(story.project.folder / "out.db", "SELECT id FROM rows WHERE id >= 0")
    assert sorted(id for (id,) in rows) == [row.id for row in later]


SHOWN = VIEWS.replace("views:", "shown:", 1) + "  renamedFrom: views\n"
OF_SHOWN = NATIVE.replace("FROM views", "FROM shown")
CLEAN = "from: views, filter: amount >= 0"
TWO = {"per_minute": WINDOW, "per_user": NATIVE}
CASES = [
    Case("A setting, such as `run.trigger` or a label",
         Version(TWO), Version(TWO, extra="run: {trigger: 2 seconds}"), complete(*TWO), upgrade=False),
    Case("The condition of a filter, or a query without state",
         Version({"clean": CLEAN, "per_minute": f"from: clean, {WINDOW}"}),
         Version({"clean": CLEAN.replace(">= 0", ">= -1"), "per_minute": f"from: clean, {WINDOW}"}),
         complete("per_minute"), upgrade=False),
    Case("A value more in `window`", Version({"per_minute": WINDOW}), Version({"per_minute": MOST}), look_at_most,
         upgrade=False, between="ALTER TABLE per_minute ADD COLUMN most BIGINT"),
    Case("A value more in `rolling`", Version({"recent": ROLLING}), Version({"recent": SPENT}), complete("recent"),
         upgrade=False, between="ALTER TABLE recent ADD COLUMN most BIGINT"),
    Case("A column more in the rows of `latest` or `changelog_join`",
         Version({"known": "from: views, sql: SELECT * FROM views", "newest": f"from: known, {LATEST}"}),
         Version({"known": "from: views, sql: 'SELECT *, amount * 2 AS double FROM views'",
                  "newest": f"from: known, {LATEST}"}),
         look_at_columns, upgrade=False, between="ALTER TABLE newest ADD COLUMN double BIGINT"),
    Case("A step that keeps state is added", Version(TWO), Version({"recent": ROLLING, **TWO}),
         from_then_on("recent", *TWO)),
    Case("A step that keeps state is removed", Version({"recent": ROLLING, **TWO}), Version(TWO), complete(*TWO),
         lose=("recent",)),
    Case("A step is renamed", Version(TWO),
         Version({"minutes": f"{WINDOW}, renamedFrom: per_minute", "users": f"{NATIVE}, renamedFrom: per_user"},
                 sinks={"per_minute": "minutes", "per_user": "users"}), complete(*TWO)),
    Case("Steps and sinks stand in another order", Version({**TWO, "recent": ROLLING}),
         Version({"recent": ROLLING, "per_user": NATIVE, "per_minute": WINDOW},
                 sinks={"per_minute": "per_minute", "recent": "recent", "per_user": "per_user"}),
         complete(*TWO, "recent")),
    Case("A step without state is put between others", Version({"per_minute": WINDOW, "recent": ROLLING}),
         Version({"clean": CLEAN, "per_minute": f"from: clean, {WINDOW}", "recent": f"from: clean, {ROLLING}"}),
         complete("per_minute", "recent")),
    Case("A source is added", Version({"per_minute": WINDOW}),
         Version({"per_minute": WINDOW}, (VIEWS, CLICKS), sinks={"per_minute": "per_minute", "rows": "clicks"}),
         complete("per_minute"), upgrade=False),
    Case("A source is removed", Version({"per_minute": WINDOW, "clicked": JOIN}, (VIEWS, CLICKS)),
         Version({"per_minute": WINDOW}), complete("per_minute"), lose=("clicks", "clicked")),
    Case("A source is renamed", Version(TWO),
         Version({"per_minute": f"from: shown, {WINDOW}", "per_user": f"from: shown, {OF_SHOWN}"}, (SHOWN,)),
         complete(*TWO)),
    Case("A sink is added", Version({"per_minute": WINDOW}),
         Version({"per_minute": WINDOW}, sinks={"per_minute": "per_minute", "rows": "views"}), look_at_rows),
    Case("A sink is renamed", Version({"per_minute": WINDOW}),
         Version({"per_minute": WINDOW}, called={"per_minute": "minutes_out, renamedFrom: per_minute_table"}),
         complete("per_minute")),
    Case("`state.partitions`", Version(TWO), Version(TWO, extra="state: {partitions: 3}"), complete(*TWO)),
    Case("The size or the key of a window, or how far `rolling` reaches", Version({**TWO, "recent": ROLLING}),
         Version({**TWO, "recent": ROLLING.replace("5 minutes", "4 minutes")}), complete(*TWO), lose=("recent",)),
    Case("A query that Spark keeps state for", Version(TWO),
         Version({"per_minute": WINDOW, "per_user": NATIVE.replace("count(*) AS n", "count(id) AS n")}),
         from_then_on("per_user", "per_minute"), lose=("per_user",)),
]  # fmt: skip


def tell(case: Case, project: Project) -> None:
    story = Story(project)
    story.more(2)
    story.run(case.before.write(story))
    seen = len(story.views)
    pipeline = case.after.write(story)
    with closing(sqlite3.connect(project.folder / "out.db")) as db:
        db.executescript(case.between)
    story.more(1)
    if case.upgrade:
        with pytest.raises(PenstockError) as refused:
            story.run(pipeline)
        assert refused.value.code in ("CHANGE_NEEDS_UPGRADE", "STATE_PARTITIONS_FIXED")
        assert upgrade(load(pipeline), story.state, case.lose, spark=shared_session()).savepoint is not None
    story.end()
    story.run(pipeline)
    case.looks(story, story.views[seen:])
    identity = read_identity(story.state)
    assert identity is not None
    assert identity.version is not None


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=[case.kind for case in CASES])
def test_after_a_change_all_is_as_it_must_be(case: Case, project: Project) -> None:
    tell(case, project)


def test_the_guide_lists_every_kind_of_change() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| ", GUIDE.read_text("utf-8"), re.MULTILINE)
    assert [row for row in rows if row not in ("What changes", "---")] == [case.kind for case in CASES]
