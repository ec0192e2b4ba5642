"""Spark's own options, under the names spark-submit gives them."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.errors import PenstockError

Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Spark master: local[*], local[N], spark://…, yarn, k8s://….")
]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark option; may be repeated.")]
Packages = Annotated[
    list[str] | None,
    typer.Option(
        "--packages", metavar="G:A:V", help="Maven coordinates of jars to add, which are not checked; may be repeated."
    ),
]
DriverMemory = Annotated[
    str | None, typer.Option("--driver-memory", metavar="SIZE", help="Memory of the driver, such as 4g.")
]


def parsed_conf(conf: list[str] | None) -> dict[str, str]:
    """`KEY=VALUE` pairs; raises for anything else."""
    pairs = {}
    for item in conf or []:
        key, equals, value = item.partition("=")
        if not equals or not key.startswith("spark."):
            advice = "Write --conf spark.some.option=value."
            raise PenstockError.of("USAGE", reason=f"--conf {item} is not a Spark option", advice=advice)
        pairs[key] = value
    return pairs
