"""The picture of one machine as SVG: the two directions of its card, filled by what goes through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from penstock.capacity.figures import byte_rate, share
from penstock.capacity.picture import Arrow, Picture
from penstock.capacity.traffic import Kind

_COLOURS = {
    Kind.SOURCE: "#2f6fb0",
    Kind.SHUFFLE: "#d98324",
    Kind.EMIT: "#3f9a68",
    Kind.STORED: "#2a9aa8",
    Kind.STATE: "#8a63b8",
    Kind.SHUFFLE_FILES: "#b98a52",
    Kind.CHECKPOINT: "#c2504f",
}
_OVER = "#b3261e"
_INK, _FAINT, _LINE, _FREE, _BOX = "#1c2733", "#5d6b7a", "#b9c3cd", "#eef1f4", "#f8fafb"
_WIDTH, _TOP, _CARD, _BAR = 960, 104, 300, 30
_LEFT, _RIGHT = 300, 660
"""Where the two directions of the card stand."""
_LABEL_GAP = 44
_FONT = "font-family=\"'Inter', 'Segoe UI', 'Helvetica Neue', Arial, sans-serif\""


def as_svg(picture: Picture) -> str:
    """A whole document. It fetches nothing."""
    most = max(len(picture.into), len(picture.out), 1)
    label_gap = min(_LABEL_GAP, _CARD // most)
    height = _TOP + _CARD + 92
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'{_FONT} font-size="14" role="img">',
        f"<title>{escape(_sentence(picture))}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_box(picture),
        *_side(picture, picture.into, picture.total_in, label_gap, incoming=True),
        *_side(picture, picture.out, picture.total_out, label_gap, incoming=False),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _sentence(picture: Picture) -> str:
    return f"{picture.title}: {byte_rate(picture.total_in)} in, {byte_rate(picture.total_out)} out"


def _box(picture: Picture) -> Iterator[str]:
    """The machine between the two directions of its card."""
    x, width, top, height = _LEFT + _BAR // 2, _RIGHT - _LEFT, _TOP - 56, _CARD + 68
    yield f'<rect x="{x}" y="{top}" width="{width}" height="{height}" rx="10" fill="{_BOX}" stroke="{_LINE}"/>'
    middle = x + width / 2
    yield _text(middle, top + 28, picture.title, anchor="middle", weight=600, size=16)
    start = _TOP + _CARD / 2 - (len(picture.inside) - 1) * 13
    for at, line in enumerate(picture.inside):
        yield _text(middle, start + at * 26, line, anchor="middle", colour=_INK if at == 0 else _FAINT)


def _side(picture: Picture, arrows: Sequence[Arrow], total: float, label_gap: int, *, incoming: bool) -> Iterator[str]:
    """One direction: labels, bands as thick as what flows, and the card with what is free of it."""
    x = _LEFT if incoming else _RIGHT
    direction = "In" if incoming else "Out"
    # A card that is over its limit is drawn as high as what it would have to carry.
    scale = _CARD / max(picture.limit, total)
    full = picture.limit * scale
    yield f'<rect x="{x}" y="{_TOP}" width="{_BAR}" height="{full:.1f}" fill="{_FREE}" stroke="{_LINE}"/>'
    at, anchor = (28, "start") if incoming else (_WIDTH - 28, "end")
    yield _text(at, _TOP - 28, "→ in" if incoming else "out →", anchor=anchor, colour=_FAINT)
    y = float(_TOP)
    for arrow, label in zip(arrows, _labels([arrow.bytes * scale for arrow in arrows], label_gap), strict=True):
        thick = arrow.bytes * scale
        colour = _COLOURS[arrow.kind]
        yield _band(x, y, max(thick, 1.0), label, colour, incoming)
        yield f'<rect x="{x}" y="{y:.1f}" width="{_BAR}" height="{thick:.1f}" fill="{colour}"/>'
        yield _text(at, label - 3, arrow.name, anchor=anchor, weight=600)
        yield _text(at, label + 14, byte_rate(arrow.bytes), anchor=anchor, colour=_FAINT)
        y += thick
    inside, towards = (x + _BAR + 10, "start") if incoming else (x - 10, "end")
    free = max(picture.limit - total, 0.0)
    if total > picture.limit:
        line = _TOP + full
        ends = f'x1="{x - 8}" y1="{line:.1f}" x2="{x + _BAR + 8}" y2="{line:.1f}"'
        yield f'<line {ends} stroke="{_OVER}" stroke-width="3"/>'
        yield _text(inside, line - 6, f"limit {byte_rate(picture.limit)}", anchor=towards, colour=_OVER, size=12)
    elif free * scale > 20:
        yield _text(inside, _TOP + full - 8, f"{byte_rate(free)} free", anchor=towards, colour=_FAINT, size=12)
    bottom = _TOP + _CARD + 40
    colour = _OVER if total > picture.limit else _INK
    yield _text(at, bottom, f"Total {direction}: {byte_rate(total)}", anchor=anchor, weight=700, size=17,
                colour=colour)  # fmt: skip
    limit = f"{share(total / picture.limit)} of {byte_rate(picture.limit)} ({picture.card})"
    yield _text(at, bottom + 22, limit, anchor=anchor, colour=_FAINT)


def _labels(heights: Sequence[float], gap: float) -> list[float]:
    """Where the labels of stacked parts stand: beside the middle of each, but apart and within the card."""
    found: list[float] = []
    y = float(_TOP)
    for height in heights:
        found.append(max(y + height / 2, found[-1] + gap if found else _TOP + 8.0))
        y += height
    lowest = _TOP + _CARD - 16.0
    for at in range(len(found) - 1, -1, -1):
        found[at] = min(found[at], lowest - gap * (len(found) - 1 - at))
    return found


def _band(x: int, y: float, thick: float, label: float, colour: str, incoming: bool) -> str:
    """From the label to its part of the card, or the other way."""
    near, far = (x, 170) if incoming else (x + _BAR, _WIDTH - 170)
    bend = (near + far) / 2
    tail = min(max(thick, 1.0), 26.0)
    top, bottom = label - tail / 2, label + tail / 2
    return (
        f'<path d="M {far} {top:.1f} C {bend:.0f} {top:.1f} {bend:.0f} {y:.1f} {near} {y:.1f} '
        f'L {near} {y + thick:.1f} C {bend:.0f} {y + thick:.1f} {bend:.0f} {bottom:.1f} {far} {bottom:.1f} Z" '
        f'fill="{colour}" fill-opacity="0.35"/>'
    )


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", colour: str = _INK, weight: int = 400, size: int = 14
) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}" '
        f'font-size="{size}">{escape(words)}</text>'
    )
