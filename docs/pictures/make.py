"""Draws the pictures of the guides: `python docs/pictures/make.py` writes them beside this file.

Every picture stands on a card of its own, in light or dark colours as the viewer asks for. Nothing is fetched, and
texts are measured roughly, so that a test can tell when two of them would overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
WIDTH = 860
LIGHT = {
    "card": "fill:#ffffff;stroke:#d0d7de", "text": "fill:#1f2328", "muted": "fill:#59636e", "code": "fill:#1f2328",
    "axis": "stroke:#8c959f", "grid": "stroke:#d8dee4", "band": "fill:#f6f8fa", "open": "fill:#ddf4ff;stroke:#54aeff",
    "final": "fill:#dafbe1;stroke:#4ac26b", "old": "fill:#f6f8fa;stroke:#afb8c1",
    "wrong": "fill:#ffebe9;stroke:#ff8182",
    "row": "fill:#0969da", "second": "fill:#8250df", "late": "fill:#cf222e", "inside": "fill:#ffffff",
    "mark": "stroke:#bc4c00", "marktext": "fill:#953800", "arrow": "stroke:#cf222e", "arrowhead": "fill:#cf222e",
    "plain": "stroke:#59636e", "plainhead": "fill:#59636e", "latetext": "fill:#a40e26",
}  # fmt: skip
DARK = {
    "card": "fill:#0d1117;stroke:#30363d", "text": "fill:#e6edf3", "muted": "fill:#9198a1", "code": "fill:#e6edf3",
    "axis": "stroke:#6e7681", "grid": "stroke:#21262d", "band": "fill:#151b23", "open": "fill:#0c2d4d;stroke:#1f6feb",
    "final": "fill:#12331c;stroke:#238636", "old": "fill:#151b23;stroke:#484f58",
    "wrong": "fill:#3c1418;stroke:#b62324",
    "row": "fill:#4493f8", "second": "fill:#ab7df8", "late": "fill:#f85149", "inside": "fill:#0d1117",
    "mark": "stroke:#f0883e", "marktext": "fill:#f0883e", "arrow": "stroke:#f85149", "arrowhead": "fill:#f85149",
    "plain": "stroke:#9198a1", "plainhead": "fill:#9198a1", "latetext": "fill:#ff7b72",
}  # fmt: skip


@dataclass(frozen=True)
class Box:
    """Where a text is, roughly."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.bottom <= other.top or other.bottom <= self.top)


@dataclass
class Picture:
    """A picture under construction, and the places of its texts."""

    title: str
    height: int
    parts: list[str] = field(default_factory=list)
    texts: list[Box] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, kind: str = "text", *, at: str = "start", size: float = 13) -> None:
        """A line of text; `at` says which of its ends is at x."""
        mono = kind == "code"
        width = sum(_width(char, mono) for char in words) * size
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[at]
        self.texts.append(Box(words, left, y - 0.78 * size, left + width, y + 0.22 * size))
        self.parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{at}" font-size="{size:g}">'
            f"{escape(words)}</text>"
        )

    def rect(self, x: float, y: float, width: float, height: float, kind: str, *, round_: float = 5) -> None:
        self.parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_:g}"/>'
        )

    def line(self, points: Sequence[tuple[float, float]], kind: str, *, width: float = 1.5, dash: str = "") -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline class="{kind}" fill="none" stroke-width="{width:g}"{dashed} points="{path}"/>')

    def arrow(self, points: Sequence[tuple[float, float]], kind: str = "plain", *, dash: str = "") -> None:
        """A line whose last point has a head."""
        (x0, y0), (x1, y1) = points[-2:]
        angle = math.atan2(y1 - y0, x1 - x0)
        back = (x1 - 7 * math.cos(angle), y1 - 7 * math.sin(angle))
        self.line([*points[:-1], back], kind, dash=dash)
        corners = [(x1, y1)]
        corners += [(x1 - 9 * math.cos(angle + turn), y1 - 9 * math.sin(angle + turn)) for turn in (0.45, -0.45)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self.parts.append(f'<polygon class="{kind}head" points="{path}"/>')

    def dot(self, x: float, y: float, name: str, kind: str = "row") -> None:
        self.circle(x, y, 9, kind)
        self.parts.append(
            f'<text class="inside" x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" font-size="11.5" '
            f'font-weight="600">{escape(name)}</text>'
        )

    def circle(self, x: float, y: float, radius: float, kind: str) -> None:
        self.parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>')

    def polygon(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polygon class="{kind}" stroke-width="1.2" points="{path}"/>')

    def svg(self, *, dark: bool | None = None) -> str:
        """The whole file; `dark` fixes the colours, otherwise the viewer decides."""
        light, night = _rules(LIGHT), _rules(DARK)
        rules = {True: night, False: light, None: f"{light}\n@media (prefers-color-scheme: dark) {{\n{night}\n}}"}[dark]
        font = 'font-family="system-ui, -apple-system, Segoe UI, DejaVu Sans, sans-serif"'
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
            f'height="{self.height}" role="img" {font}>'
        )
        card = f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{self.height - 1}" rx="8"/>'
        body = "\n".join([f"<title>{escape(self.title)}</title>", f"<style>\n{rules}\n</style>", card, *self.parts])
        return f"{head}\n{body}\n</svg>\n"

    def overlaps(self) -> list[tuple[str, str]]:
        """Texts that would overlap, and those that would leave the card."""
        found = [
            (one.text, other.text)
            for index, one in enumerate(self.texts)
            for other in self.texts[index + 1 :]
            if one.meets(other)
        ]
        outside = [box for box in self.texts if box.left < 8 or box.right > WIDTH - 8 or box.bottom > self.height - 4]
        return found + [(box.text, "the edge") for box in outside]


def _rules(colours: dict[str, str]) -> str:
    mono = 'font-family:ui-monospace,SFMono-Regular,Consolas,"DejaVu Sans Mono",monospace'
    return "\n".join(f".{name} {{ {rule}{';' + mono if name == 'code' else ''} }}" for name, rule in colours.items())


def _width(char: str, mono: bool) -> float:
    """The width of a letter in a wide sans-serif font, as a share of its size."""
    if mono:
        return 0.61
    if char in "iljftI.,:;'|()[] ":
        return 0.38
    return 0.92 if char in "mwMW→" else 0.64


def clock(seconds: int) -> str:
    """12:00 and so many seconds, as a clock shows it; whole minutes without seconds."""
    minutes, rest = divmod(12 * 3600 + seconds, 60)
    return f"{minutes // 60}:{minutes % 60:02d}" + (f":{rest:02d}" if rest else "")


@dataclass(frozen=True)
class Axis:
    """Event time from left to right."""

    start: int
    end: int
    left: float
    right: float

    def x(self, seconds: float) -> float:
        return self.left + (seconds - self.start) * (self.right - self.left) / (self.end - self.start)

    def draw(self, picture: Picture, y: float, top: float, bottom: float, every: int = 60) -> None:
        for second in range(self.start, self.end + 1, every):
            picture.line([(self.x(second), top), (self.x(second), bottom)], "grid", width=1)
            picture.text(self.x(second), y, clock(second), "muted", at="middle", size=12)


# --- kinds of windows ------------------------------------------------------------------------------------------

VIEWS = {"a": 10, "b": 25, "c": 40, "d": 75, "e": 130, "f": 150, "g": 165, "h": 250}
"""Rows of the picture of windows, in seconds after twelve."""
SIZE, SLIDE, GAP = 60, 60, 30


def tumbling() -> list[tuple[int, int, int]]:
    """Start, end and number of rows of windows of a minute."""
    return _counted((start, start + SIZE) for start in range(0, 300, SIZE))


def sliding() -> list[tuple[int, int, int]]:
    """The same of windows of two minutes, one each minute."""
    return _counted((start, start + 2 * SIZE) for start in range(-SIZE, 300, SLIDE))


def sessions() -> list[tuple[int, int, int]]:
    """The same of sessions with a gap of half a minute."""
    found: list[list[int]] = []
    for time in sorted(VIEWS.values()):
        if found and time <= found[-1][-1] + GAP:
            found[-1].append(time)
        else:
            found.append([time])
    return [(times[0], times[-1] + GAP, len(times)) for times in found]


def _counted(bounds: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
    counts = [(start, end, sum(start <= time < end for time in VIEWS.values())) for start, end in bounds]
    return [window for window in counts if window[2]]


def windows() -> Picture:
    picture = Picture("Tumbling windows, sliding windows and sessions over the same rows", 358)
    axis = Axis(-60, 360, 120, 830)
    axis.draw(picture, 30, 40, 322)
    picture.text(18, 68, "rows", size=13)
    for name, time in VIEWS.items():
        picture.dot(axis.x(time), 64, name)

    def bar(start: int, end: int, rows: int, y: float) -> None:
        picture.rect(axis.x(start) + 1.5, y, axis.x(end) - axis.x(start) - 3, 24, "open")
        picture.text((axis.x(start) + axis.x(end)) / 2, y + 16.5, str(rows), at="middle", size=13)

    picture.text(18, 116, "tumbling")
    picture.text(18, 132, "size 1 minute", "muted", size=11)
    for start, end, rows in tumbling():
        bar(start, end, rows, 104)
    picture.text(18, 182, "sliding")
    picture.text(18, 198, "size 2 minutes", "muted", size=11)
    picture.text(18, 213, "slide 1 minute", "muted", size=11)
    for number, (start, end, rows) in enumerate(sliding()):
        bar(start, end, rows, 162 + 28 * (number % 3))
    picture.text(18, 276, "sessions")
    picture.text(18, 292, "gap 30 seconds", "muted", size=11)
    for start, end, rows in sessions():
        bar(start, end, rows, 266)
        last = max(time for time in VIEWS.values() if time < end)
        picture.line([(axis.x(last), 300), (axis.x(end), 300)], "mark", width=2)
        picture.text((axis.x(last) + axis.x(end)) / 2, 315, "gap", "marktext", at="middle", size=11)
    picture.text(
        120, 342, "The number in a window is its count of rows. A window without rows gives no result.", "muted"
    )
    return picture


# --- late rows -------------------------------------------------------------------------------------------------

MAX_DELAY = 10
BATCHES = ({"a": 10, "b": 40, "c": 75}, {"e": 50, "f": 62, "d": 90}, {"g": 140})
"""Rows of the pictures of late rows, in seconds after twelve, as they arrive."""


def watermarks() -> list[int | None]:
    """The watermark by which each batch is judged, and the one after the last; None is none yet."""
    found: list[int | None] = [None]
    for number in range(len(BATCHES)):
        found.append(max(time for batch in BATCHES[: number + 1] for time in batch.values()) - MAX_DELAY)
    return found


def _stream(title: str, height: int) -> tuple[Picture, Axis]:
    """Rows as they arrive, from top to bottom, and the watermark that follows them."""
    picture = Picture(title, height)
    axis = Axis(0, 160, 118, 838)
    for start in (0, 60, 120):
        end = min(start + 60, axis.end)
        picture.rect(axis.x(start) + 2, 40, axis.x(end) - axis.x(start) - 4, 162, "band")
    axis.draw(picture, 30, 36, 206)
    steps: list[tuple[float, float]] = []
    for number, (batch, mark) in enumerate(zip(BATCHES, watermarks(), strict=False)):
        y = 68 + 56 * number
        picture.text(18, y + 4, ("first batch", "second batch", "third batch")[number], size=13)
        for name, time in batch.items():
            late = mark is not None and (time // 60 + 1) * 60 <= mark
            picture.dot(axis.x(time), y, name, "late" if late else "row")
        if mark is not None:
            steps += [(axis.x(mark), y - 28), (axis.x(mark), y + 28)]
            picture.text(axis.x(mark) + 5, y - 15, f"watermark {clock(mark)}", "marktext", size=11)
    last = watermarks()[-1]
    assert last is not None
    steps += [(axis.x(last), 208), (axis.x(last), 220)]
    picture.line(steps, "mark", width=2, dash="5 4")
    picture.text(axis.x(last) + 5, 220, f"watermark {clock(last)}", "marktext", size=11)
    return picture, axis


def _result(picture: Picture, x: float, y: float, views: str, when: str, kind: str = "final") -> None:
    picture.rect(x, y, 148, 40, kind)
    picture.text(x + 10, y + 17, views, size=13)
    picture.text(x + 10, y + 32, when, "muted", size=11)


def late_drop() -> Picture:
    picture, axis = _stream("late: drop. The late row is counted and goes no further", 330)
    picture.text(18, 258, "results", size=13)
    _result(picture, axis.x(0) + 8, 240, "12:00 · views 2", "after the first batch")
    _result(picture, axis.x(60) + 8, 240, "12:01 · views 3", "after the third batch")
    picture.text(18, 308, "late", size=13)
    picture.text(
        axis.x(0) + 10, 308, "1, in the ledger and in the summary of the run; row e is gone", "latetext", size=13
    )
    return picture


def late_side() -> Picture:
    picture, axis = _stream("late: side. The late row is kept beside the results", 362)
    picture.text(18, 258, "results", size=13)
    _result(picture, axis.x(0) + 8, 240, "12:00 · views 2", "after the first batch")
    _result(picture, axis.x(60) + 8, 240, "12:01 · views 3", "after the third batch")
    picture.text(18, 316, "late rows", size=13)
    picture.rect(axis.x(0) + 8, 294, 700, 48, "wrong")
    picture.text(axis.x(0) + 18, 313, "id e · ts 12:00:50 · late_by_ms 5000 · late_step, late_batch", "code", size=12)
    picture.text(axis.x(0) + 18, 331, "late_window_start 12:00 · late_window_end 12:01", "code", size=12)
    picture.arrow([(axis.x(50), 134), (axis.x(50), 292)], "arrow", dash="4 3")
    return picture


def late_correct() -> Picture:
    picture, axis = _stream("late: correct. The window is opened again and its result is replaced", 362)
    picture.text(18, 258, "results", size=13)
    _result(picture, axis.x(0) + 8, 240, "12:00 · views 2", "after the first batch", "old")
    _result(picture, axis.x(60) + 8, 240, "12:01 · views 3", "after the third batch")
    picture.text(18, 316, "corrections", size=13)
    _result(picture, axis.x(0) + 8, 298, "12:00 · views 3", "after the second batch")
    picture.arrow([(axis.x(0) + 40, 282), (axis.x(0) + 40, 296)], "plain")
    picture.arrow([(axis.x(50), 134), (axis.x(50), 318), (axis.x(0) + 160, 318)], "arrow", dash="4 3")
    picture.text(axis.x(60) + 8, 322, "The later row replaces the earlier one in a sink with a key.", "muted", size=12)
    return picture


# --- rolling ---------------------------------------------------------------------------------------------------

READS = ((0, "x"), (25, "y"), (40, "x"), (60, "z"), (85, "y"), (115, "x"))
"""Views of one user: seconds after twelve, and the article."""
OVER = 60


def trailing() -> list[tuple[int, int, int]]:
    """For each view its time, and how many views and different articles its last minute has."""
    found = []
    for time, _ in READS:
        inside = [article for other, article in READS if time - OVER < other <= time]
        found.append((time, len(inside), len(set(inside))))
    return found


def rolling() -> Picture:
    picture = Picture("Each row with what its key did in the minute before it", 344)
    axis = Axis(-60, 120, 150, 830)
    axis.draw(picture, 30, 40, 312, every=30)
    picture.text(18, 66, "views of ann", size=13)
    for time, article in READS:
        picture.dot(axis.x(time), 62, article)
    for number, (time, views, articles) in enumerate(trailing()):
        y = 94 + 36 * number
        picture.text(18, y + 17, f"at {clock(time)}", "muted", size=12)
        picture.rect(axis.x(time - OVER), y + 2, axis.x(time) - axis.x(time - OVER), 24, "open")
        words = f"views {views} · articles {articles}"
        picture.text((axis.x(time) + axis.x(time - OVER)) / 2, y + 18.5, words, at="middle", size=12.5)
        picture.circle(axis.x(time - OVER), y + 14, 5, "plainhead")
        picture.circle(axis.x(time - OVER), y + 14, 3.5, "inside")
        picture.circle(axis.x(time), y + 14, 5, "row")
    picture.text(150, 330, "The interval ends with the row and includes it; its start does not belong to it.", "muted")
    return picture


# --- joins -----------------------------------------------------------------------------------------------------


def interval_join() -> Picture:
    picture = Picture("Rows of two streams meet when they are near in time", 300)
    axis = Axis(0, 1500, 130, 815)
    axis.draw(picture, 30, 40, 254, every=300)
    picture.text(18, 84, "orders", size=13)
    picture.text(18, 214, "payments", size=13)
    for name, time, y in (("1", 120, 166), ("2", 420, 138), ("3", 660, 110)):
        picture.line([(axis.x(time), 89), (axis.x(time), y)], "plain", width=1, dash="3 3")
        picture.rect(axis.x(time), y - 10, axis.x(time + 600) - axis.x(time), 20, "open")
        picture.text(axis.x(time) + 10, y + 4.5, f"order {name} waits for its payment", size=12)
    for name, time in (("1", 120), ("2", 420), ("3", 660)):
        picture.dot(axis.x(time), 80, name)
    for name, time in (("1", 540), ("2", 1200)):
        picture.dot(axis.x(time), 210, name, "second")
    picture.arrow([(axis.x(540), 199), (axis.x(540), 178)], "plain")
    picture.text(axis.x(540), 240, "a pair leaves at once", "muted", at="middle", size=12)
    picture.text(axis.x(1200), 240, "too late for order 2", "latetext", at="middle", size=12)
    picture.text(
        130, 286, "how: left gives orders 2 and 3 without a payment, when the watermark has passed their interval.",
        "muted", size=12,
    )  # fmt: skip
    return picture


# --- hexagons --------------------------------------------------------------------------------------------------


def hexagons() -> Picture:
    picture = Picture("A row counts in its own cell and in those around it", 248)
    side = 26.0
    centres = {
        (q, r): (150 + side * math.sqrt(3) * (q + r / 2), 124 + side * 1.5 * r)
        for q in range(-3, 4)
        for r in range(-2, 3)
        if abs(q + r) <= 3
    }
    for (q, r), (x, y) in centres.items():
        far = max(abs(q), abs(r), abs(q + r))
        kind = "final" if far == 0 else "open" if far == 1 else "old"
        if x > 20 and x < 280:
            picture.polygon(_hexagon(x, y, side - 1.5), kind)
    picture.dot(*centres[(0, 0)], "a")
    picture.text(330, 78, "ring 0", size=13)
    picture.text(400, 78, "a row counts in its own cell", "muted", size=13)
    picture.text(330, 108, "ring 1", size=13)
    picture.text(400, 108, "and in the six cells around it: seven results", "muted", size=13)
    picture.text(330, 138, "ring 2", size=13)
    picture.text(400, 138, "and in the twelve around those: nineteen results", "muted", size=13)
    picture.text(330, 180, "Each cell then has its own windows of event time.", "muted", size=13)
    return picture


def _hexagon(x: float, y: float, side: float) -> list[tuple[float, float]]:
    return [
        (x + side * math.cos(math.radians(60 * corner + 30)), y + side * math.sin(math.radians(60 * corner + 30)))
        for corner in range(6)
    ]


PICTURES: dict[str, Callable[[], Picture]] = {
    "windows.svg": windows,
    "late-drop.svg": late_drop,
    "late-side.svg": late_side,
    "late-correct.svg": late_correct,
    "rolling.svg": rolling,
    "interval-join.svg": interval_join,
    "hexagons.svg": hexagons,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw().svg(), "utf-8")
