"""What a YAML parser's complaint means to the person who wrote the file, and what to do about it."""

from __future__ import annotations

from ruamel.yaml.error import MarkedYAMLError

_INDENTATION = "Check the indentation: keys of one mapping start in the same column."
_QUOTE_COLON = "Put text that holds `: ` in quotes; if this is a key, check its indentation."
_QUOTE_STAR = "Put text that starts with `*` or `&` in quotes."
_KNOWN: tuple[tuple[str, str, str], ...] = (
    ("found character '\\t'", "a tab where only spaces may stand", "Indent with spaces; YAML does not take tabs."),
    ("that cannot start any token", "`{char}` cannot start a value", "Put the text in quotes."),
    ("mapping values are not allowed here", "a second `:` or a key that is indented too far", _QUOTE_COLON),
    ("sequence entries are not allowed here", "a list cannot start here", "Put each `- ` on a line of its own."),
    ("could not find expected ':'", "a key without `:`", "Write `key: value`; longer text starts with `|`."),
    ("found undefined alias", "`{word}` refers to an anchor that is not there", _QUOTE_STAR),
    ("expected alphabetic or numeric", "`{char}` starts an alias or an anchor", _QUOTE_STAR),
    ("but found another document", "a second document", "One file holds one pipeline; remove `---`."),
    ("found unknown escape character", "an unknown escape in double quotes", "Use single quotes, or double the `\\`."),
    ("chomping or indentation", "text cannot stand on the line of `|`", "Start the text on the next line, indented."),
    ("expected <block end>", "a line that fits neither the lines before nor a new key", _INDENTATION),
    ("expected '<document start>'", "text after the end of the document", _INDENTATION),
    ("expected the node content", "`{char}` cannot stand here", "Put text that starts with a bracket in quotes."),
)


def advice_for(error: MarkedYAMLError, text: str) -> tuple[str, str, int]:
    """The reason, the advice, and the offset at which to point."""
    problem = error.problem or error.context or "it cannot be read"
    mark = error.problem_mark or error.context_mark
    index = mark.index if mark is not None else 0
    context = error.context_mark.index if error.context_mark is not None else index
    if "quoted scalar" in (error.context or "") and "end of stream" in problem:
        return "a quote that is never closed", f"Close it with {text[context]}.", context
    if "while parsing a flow" in (error.context or ""):
        if text[context : context + 1] not in ("[", "{"):
            # It points at what stands in the bracket, which may be the end of the text.
            context = max(text.rfind("[", 0, context), text.rfind("{", 0, context), 0)
        bracket, closing = text[context], "}" if text[context] == "{" else "]"
        reason = f"the `{bracket}` is not closed, or text in it needs quotes"
        return reason, f"Close it with `{closing}`; put text that holds brackets, commas or `: ` in quotes.", context
    for known, reason, advice in _KNOWN:
        if known in problem:
            word = text[index : index + 30].split(maxsplit=1)
            at = context if "alphabetic" in known else index
            return reason.format(char=text[at : at + 1], word=word[0] if word else ""), advice, at
    return problem, _INDENTATION, index
