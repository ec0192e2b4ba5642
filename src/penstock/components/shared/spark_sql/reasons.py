"""Why SQL may not use something, in the words of the error."""

from __future__ import annotations

from collections.abc import Mapping

CALLS_JAVA = "it calls Java"
RUNS_PROGRAM = "it starts a program"
COMMAND = "it is a command, and a step is a query"
READS_BY_OPTION = "its options and schemas can name files and servers, which it then reads"
READS_BY_VALUE = "it reads the files and addresses that an XML text names"
HIVE = "it is a function of Hive, which brings code of its own"
COMPUTED_NAME = "the name of what is meant is computed, so that it cannot be checked"
OTHER_TABLES = "a step reads its inputs, and no other tables"
RELATIONS = "a step reads its inputs, which are declared as sources and under `from`"
OF_THE_SERVER = "it tells about the server, not about the rows"
OF_THE_FILES = "it tells where the server keeps files"
OF_THE_SESSION = "it tells what else is in the Spark session, which pipelines may share"
PARAMETERS = "a step has no parameters"
RECURSION = "a query that refers to itself does not run on a stream"
NAMED_WINDOW = "a window is written where it is used, after OVER"
BY_STEPS = "it is code, which a query cannot bring along"
INTERNAL = "Spark uses it for itself"
UNKNOWN = "Penstock does not know it"

HARMFUL = frozenset(
    {CALLS_JAVA, RUNS_PROGRAM, COMMAND, READS_BY_OPTION, READS_BY_VALUE, HIVE, COMPUTED_NAME, OF_THE_SERVER}
)
"""Reasons that count for whatever a step does, also where it is a component of its own that runs code."""


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def classed(groups: Mapping[str, str]) -> dict[str, str]:
    """The reason of each name, from names by their reason."""
    return {name: reason for reason, text in groups.items() for name in text.split()}
