"""The page of the pipeline file."""

from __future__ import annotations

from penstock.docs.fields import fields_table, legend
from penstock.docs.markdown import NOTE, doc, table
from penstock.frontends.assemble import METADATA_KEYS, TOP_KEYS
from penstock.spec import pipeline as spec
from penstock.spec.alerts import DEFAULTS, Alert
from penstock.spec.conditions import MEASURES, Condition
from penstock.spec.fields import Config
from penstock.spec.scale import ScaleSettings
from penstock.spec.secrets import SecretRef
from penstock.spec.units import Duration, Size


def pipeline_file_page() -> str:
    """The envelope: everything in a pipeline file that is not a component."""
    keys = {
        name: f"`{'metadata' if name in METADATA_KEYS else 'spec'}.{info.alias or name}`"
        for name, info in spec.Pipeline.model_fields.items()
    }
    node = {"name": "the entry's own key", "component": "the component's name"}
    sections: list[tuple[str, str, type[Config], dict[str, str]]] = [
        ("Source", "An entry of `sources`.", spec.Source, node),
        ("Event time", "`eventTime` of a source.", spec.EventTime, {}),
        ("Bootstrap", "`bootstrap` of a source.", spec.Bootstrap, {"component": "the component's name"}),
        ("Throttle", "`throttle` of a source.", spec.Throttle, {}),
        ("Step", "An entry of `steps`.", spec.Step, node),
        ("Late rows", "`late` of the pipeline or of a step; the policy alone may stand for it.", spec.LatePolicy, {}),
        ("Sink", "An entry of `sinks`. `deadLetters` holds the same, without `from`.", spec.Sink, node),
        ("State", "`state`.", spec.StateSettings, {}),
        ("Run", "`run`.", spec.RunSettings, {}),
        ("Restart", "`run.restart`.", spec.RestartSettings, {}),
        ("Ledger", "`ledger`.", spec.LedgerSettings, {}),
        ("Savepoints", "`savepoints`.", spec.SavepointSettings, {}),
        ("Scale", "`scale`; see [the guide](../guides/autoscaling.md).", ScaleSettings, {}),
        (
            "Alert",
            "An entry of `alerts`, which is a list; see [Conditions](#conditions) and "
            "[the guide](../guides/alerts-and-dashboards.md).",
            Alert,
            {},
        ),
        ("Test", "An entry of `tests`, which is a list.", spec.TestCase, {}),
    ]
    tables = [f"## {title}\n\n{where} {doc(cls)}\n\n{fields_table(cls, own)}" for title, where, cls, own in sections]
    intro = f"""\
# The pipeline file

A pipeline file has the keys {", ".join(f"`{key}`" for key in TOP_KEYS)}. The first two are always
`apiVersion: {spec.API_VERSION}` and `kind: Pipeline`. [penstock.schema.json](penstock.schema.json) is the JSON Schema
of the file; `penstock schema` prints it with the components you have installed. What a source, format, step or sink
takes is on [the page of the components](components.md).

{legend()}

## Pipeline

{fields_table(spec.Pipeline, keys)}"""
    return NOTE + "\n" + "\n".join([intro, *tables, _conditions_section(), _values_section()])


def _conditions_section() -> str:
    """What alerts can watch, and those that every pipeline has."""
    measures = [
        [f"`{name}({measure.of})`" if measure.of else f"`{name}`", str(measure.quantity), measure.doc]
        for name, measure in MEASURES.items()
    ]
    defaults = [
        [f"`{name}`", f"`{alert.when}`", "at once" if not alert.for_.millis else str(alert.for_), alert.severity]
        for name, alert in DEFAULTS.items()
    ]
    return f"""\
## Conditions

A condition compares one of these with a value: `watermark_lag > 5 minutes`. The signs are `>`, `>=`, `<`, `<=`, `==`
and `!=`; a health is compared with `==` and `!=`. What is measured for each source or sink takes the name of one, such
as `backlog(views) > 1000`; without a name the largest counts.

{table(["Watched", "Written as", "What it is"], measures)}
Every pipeline has these alerts. An alert of the same name takes the place of one of them.

{table(["Name", "Condition", "Fires after", "Severity"], defaults)}"""


def _values_section() -> str:
    rows = [
        ["duration", doc(Duration)],
        ["size", doc(Size)],
        ["condition", doc(Condition)],
        [
            "schema",
            "Columns and types: a mapping `{id: string, ts: timestamp}` or Spark DDL `id string, ts timestamp`.",
        ],
        ["time", "ISO 8601, such as `2024-01-01T00:00:00Z`."],
        ["name of a source, step or sink", f"Fits `{spec.NODE_NAME.pattern}`; unique in the pipeline."],
        ["name of a pipeline", f"Fits `{spec.PIPELINE_NAME.pattern}`."],
        ["path", "Relative to the folder of the pipeline file, absolute, or a URI that Spark knows."],
        ["secret", f"{doc(SecretRef)} It may stand in any text of a component; the value is put in when it is used."],
    ]
    return f"## Values\n\n{table(['Value', 'How it is written'], rows)}"
