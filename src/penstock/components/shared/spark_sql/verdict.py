"""What SQL may not do: judges trees of plans and expressions by the tables. Knows nothing of Spark.

A tree is judged twice. *As parsed*, before Spark has looked anything up: names of functions and tables are compared
with those that are allowed, because finding out what a name means can already read a file or run code. *As analysed*,
when Spark has put in what names mean: each class is compared with those that are allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.components.shared.spark_sql import expressions, functions, plans, reasons
from penstock.components.shared.spark_sql.trees import Tree

_KNOWN_EMPTY = reasons.names("""
    Literal.value LocalRelation.data UnresolvedRelation.options Join.hint Like.escapeChar ILike.escapeChar
    LikeAll.patterns LikeAny.patterns NotLikeAll.patterns NotLikeAny.patterns Cube.groupingSetIndexes
    Rollup.groupingSetIndexes GroupingSets.groupingSetIndexes
""")
_ALWAYS_EMPTY = {"evalContext", "evalMode", "timeZoneId"}
"""Fields that hold no tree although Spark does not write them; any other such field is refused."""
_WORDS = {
    "ScriptTransformation": "TRANSFORM ... USING",
    "PlanWithUnresolvedIdentifier": "IDENTIFIER(...)",
    "ExpressionWithUnresolvedIdentifier": "IDENTIFIER(...)",
    "WithWindowDefinition": "WINDOW ... AS",
    "RelationTimeTravel": "VERSION or TIMESTAMP AS OF",
    "RelationChanges": "CHANGES",
    "NamedStreamingRelation": "STREAM",
    "UnresolvedEventTimeWatermark": "WATERMARK ... DELAY OF",
    "NamedParameter": "a parameter",
    "PosParameter": "a parameter",
    "UnionLoop": "WITH RECURSIVE",
    "UnionLoopRef": "WITH RECURSIVE",
    "VariableReference": "a variable of the session",
    "PythonUDF": "a function that Python code has registered",
    "ScalaUDF": "a function that code has registered",
    "CallMethodViaReflection": "reflect",
    "CurrentUser": "current_user",
    "CurrentDatabase": "current_database",
    "CurrentCatalog": "current_catalog",
}
_WITH_SCHEMA = {"from_json": 1, "from_csv": 1, "from_xml": 1, "variant_get": 2, "try_variant_get": 2}
"""Functions with a schema or a type as text, and where it stands."""
_SCHEMA_OF = {"schema_of_json", "schema_of_csv", "schema_of_xml", "schema_of_variant"}
_WITH_OPTIONS = {
    "from_json": 2, "from_csv": 2, "from_xml": 2, "to_json": 1, "to_csv": 1, "to_xml": 1, "schema_of_json": 1,
    "schema_of_csv": 1, "schema_of_xml": 1,
}  # fmt: skip
"""Functions with options, and where these stand."""
_OPTIONS = reasons.names("""
    allowbackslashescapinganycharacter allowcomments allownonnumericnumbers allownumericleadingzeros
    allowsinglequotes allowunquotedcontrolchars allowunquotedfieldnames arrayelementname attributeprefix charset
    chartoescapequoteescaping columnnameofcorruptrecord comment dateformat declaration delimiter
    dropfieldifallnull emptyvalue enabledatetimeparsingfallback encoding enforceschema escape escapequotes
    excludeattribute header ignoreleadingwhitespace ignorenamespace ignorenullfields ignoresurroundingspaces
    ignoretrailingwhitespace indent infertimestamp inferschema linesep locale maxcharspercolumn maxcolumns mode
    multiline nanvalue negativeinf nullvalue positiveinf preferdate prefersdecimal pretty primitivesasstring
    quote quoteall roottag rowtag samplingratio sep singlevariantcolumn sortkeys timeformat timestampformat
    timestampntzformat timezone treatemptyvaluesasnulls unescapedquotehandling validatename valuetag
    wildcardcolname writenonasciicharacterascodepoint
""")


class By(Enum):
    """Who has made what is judged."""

    QUERY = "a query or an expression as text"
    STEP = "a step of Penstock, from such texts among others"
    COMPONENT = "a step that is not Penstock's, and may run code"


@dataclass(frozen=True)
class Refusal:
    """What is not allowed, in words, and by what it can be found in the tree."""

    what: str
    reason: str
    kind: str
    name: str = ""
    unknown: str = ""
    """`table` or `function` if there is none of this name."""


def judge_parsed(tree: Tree, tables: Collection[str] = ()) -> Refusal | None:
    """What is not allowed in a tree as parsed; it may read the tables of these names."""
    waiting: list[tuple[Tree, frozenset[str]]] = [(tree, frozenset(name.lower() for name in tables))]
    while waiting:
        node, known = waiting.pop()
        refused = _class_refused(node, By.QUERY) or _name_refused(node, known)
        if refused is not None:
            return refused
        if node.name == "UnresolvedWith":
            inner = list(_defined(node, known))
            waiting.extend((body, names) for body, names, _ in inner)
            known = known | {name for *_, name in inner}
        else:
            for name, found in node.inside():
                if found is not None:
                    waiting.append((found, known))
                elif name not in _ALWAYS_EMPTY and f"{node.name}.{name}" not in _KNOWN_EMPTY:
                    return Refusal(_in_words(node), reasons.UNKNOWN, node.kind)
        waiting.extend((child, known) for child in node.children)
    return None


def judge_analysed(tree: Tree, by: By, tables: Collection[str] = ()) -> Refusal | None:
    """What is not allowed in a tree as analysed; what lies below the tables of these names is not looked at."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if node.name == "View" and viewed(node) in tables:
            continue
        refused = _class_refused(node, by)
        if refused is not None:
            return refused
        waiting.extend(found for _, found in node.inside() if found is not None)
        waiting.extend(node.children)
    return None


def judge_plan_class(kind: str, by: By) -> Refusal | None:
    """Whether a node of a plan may be there, by its class."""
    return _class_refused(Tree(kind, {}), by)


def viewed(view: Tree) -> str:
    """The name of the table that a view in a plan stands for."""
    described = view.fields.get("desc")
    identifier = described.get("identifier") if isinstance(described, dict) else None
    temporary = view.fields.get("isTempView") is True
    return str(identifier.get("table", "")) if temporary and isinstance(identifier, dict) else ""


def _class_refused(node: Tree, by: By) -> Refusal | None:
    if node.kind in plans.ALLOWED or node.kind in expressions.ALLOWED:
        return _java_refused(node)
    reason = plans.REFUSED.get(node.kind) or expressions.REFUSED.get(node.kind) or reasons.UNKNOWN
    if by is By.COMPONENT and reason not in reasons.HARMFUL:
        return None
    if by is By.STEP and node.kind in plans.REFUSED and reason in (reasons.BY_STEPS, reasons.RELATIONS):
        return None
    return Refusal(_in_words(node), reason, node.kind)


def _java_refused(node: Tree) -> Refusal | None:
    """Functions of Spark are calls of its own classes once analysed; a call of any other class is none of them."""
    called = node.fields.get("staticObject")
    if called is None or (isinstance(called, str) and called.startswith("org.apache.spark.")):
        return None
    return Refusal("a call of a Java class", reasons.CALLS_JAVA, node.kind)


def _name_refused(node: Tree, tables: Collection[str]) -> Refusal | None:
    match node.name:
        case "UnresolvedFunction":
            return _function_refused(node, node.fields.get("nameParts")) or _arguments_refused(node)
        case "UnresolvedGenerator" | "UnresolvedTableValuedFunction" | "UnresolvedTVFAliases":
            return _function_refused(node, node.fields.get("name")) or _generator_refused(node)
        case "UnresolvedRelation":
            return _table_refused(node, tables)
        case "UnresolvedWith" if node.fields.get("allowRecursion") is not False:
            return Refusal("WITH RECURSIVE", reasons.RECURSION, node.kind)
    return None


def _function_refused(node: Tree, written: Any) -> Refusal | None:
    name = _function_name(written)
    if name in functions.ALLOWED and not node.fields.get("isInternal"):
        return None
    reason = functions.REFUSED.get(name)
    shown = ".".join(_parts(written))
    if reason is not None:
        return Refusal(f"the function '{shown}'", reason, node.kind, str(written))
    return Refusal(f"the function '{shown}'", reasons.UNKNOWN, node.kind, str(written), unknown="function")


def _function_name(written: Any) -> str:
    """The name of a function as the tables have it; those of Spark may be written with where they are."""
    parts = [part.lower() for part in _parts(written)]
    if parts[:-1] in ([], ["builtin"], ["system", "builtin"]):
        return parts[-1] if parts else ""
    return ".".join(parts)


def _parts(written: Any) -> list[str]:
    """The parts of a name: a text like `[system, builtin, upper]`, or fields."""
    if isinstance(written, dict):
        return [str(written[key]) for key in ("catalog", "database", "funcName") if written.get(key)]
    return str(written).removeprefix("[").removesuffix("]").split(", ")


def _table_refused(node: Tree, tables: Collection[str]) -> Refusal | None:
    written = str(node.fields.get("multipartIdentifier"))
    if written.startswith("[") and written.endswith("]") and written[1:-1].lower() in tables:
        return None
    parts = _parts(written)
    if len(parts) == 1:
        return Refusal(f"the table '{parts[0]}'", reasons.OTHER_TABLES, node.kind, written, unknown="table")
    return Refusal(f"the table '{'.'.join(parts)}'", reasons.OTHER_TABLES, node.kind, written)


def _arguments_refused(call: Tree) -> Refusal | None:
    """Functions whose options or schemas could do more than describe a format take them as plain texts only."""
    name = _function_name(call.fields.get("nameParts"))
    if name not in _WITH_OPTIONS and name not in _WITH_SCHEMA:
        return None
    arguments = [call.argument(number) for number in range(len(call.children))]
    if any(item is not None and item.name == "NamedArgumentExpression" for item in arguments):
        return _of_call(call, name, "named arguments", "it takes them by their place")
    place = _WITH_SCHEMA.get(name)
    schema = arguments[place] if place is not None and place < len(arguments) else None
    if schema is not None and not _is_plain_schema(schema):
        return _of_call(
            call, name, "a schema that is not plain DDL", "a schema as JSON or computed can bring code along"
        )
    place = _WITH_OPTIONS.get(name)
    options = arguments[place] if place is not None and place < len(arguments) else None
    wrong = None if options is None else _wrong_option(options)
    if wrong is None:
        return None
    return _of_call(call, name, wrong, "it can name a file or a server, which is then read, or it is not known")


def _generator_refused(node: Tree) -> Refusal | None:
    """Functions whose arguments are looked at give no tables."""
    written = node.fields.get("name")
    if _function_name(written) not in {*_WITH_OPTIONS, *_WITH_SCHEMA}:
        return None
    return Refusal(
        f"the function '{_function_name(written)}' as a table", "it gives no tables", node.kind, str(written)
    )


def _of_call(call: Tree, function: str, what: str, reason: str) -> Refusal:
    return Refusal(f"{what} of '{function}'", reason, call.kind, str(call.fields.get("nameParts")))


def _is_plain_schema(schema: Tree) -> bool:
    if schema.name == "UnresolvedFunction":
        return _function_name(schema.fields.get("nameParts")) in _SCHEMA_OF
    text = _text(schema)
    return text is not None and not set(text) & set('{}"')


def _wrong_option(options: Tree) -> str | None:
    """The first option that is not allowed, in words; options are `map('name', 'value', ...)`."""
    if options.name != "UnresolvedFunction" or _function_name(options.fields.get("nameParts")) != "map":
        return "options that are not written as map('name', 'value')"
    for number in range(0, len(options.fields.get("arguments") or ()), 2):
        key = options.argument(number)
        name = None if key is None else _text(key)
        if name is None:
            return "an option whose name is computed"
        if name.lower() not in _OPTIONS:
            return f"the option '{name}'"
    return None


def _text(tree: Tree) -> str | None:
    """The text of a literal."""
    value = tree.fields.get("value")
    is_text = tree.name == "Literal" and str(tree.fields.get("dataType")).startswith("string")
    return value if is_text and isinstance(value, str) else None


def _defined(node: Tree, known: frozenset[str]) -> Iterator[tuple[Tree, frozenset[str], str]]:
    """What WITH defines, each with the tables known there: those before it are."""
    for item in node.fields.get("cteRelations") or ():
        name = str(item["_1"]).lower()
        for body in (found for _, found in Tree("", {"body": item["_2"]}).inside() if found is not None):
            yield body, known, name
        known = known | {name}


def _in_words(node: Tree) -> str:
    if node.name in _WORDS:
        return _WORDS[node.name]
    names = [name for name, reason in functions.REFUSED.items() if name.replace("_", "") == node.name.lower()]
    return f"the function '{names[0]}'" if names else f"what Spark calls {node.name}"
