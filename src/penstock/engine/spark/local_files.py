"""A local file system for Spark that starts no programs, and the jar that it is in.

Hadoop's own one starts `readlink` and `chmod` for every file of a checkpoint: some fifty programs a batch, a third of
what a small pipeline costs. `LocalFiles.java` takes its place for local masters. Spark brings a compiler, Janino, so no
JDK is needed: the class is compiled when Penstock is set up, or else by the first session, for the sessions after it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE = Path(__file__).with_name("LocalFiles.java")
_CLASS = "penstock.LocalFiles"
LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": _CLASS,
    # The manager that Spark takes otherwise asks Hadoop for links, for which Hadoop starts `readlink`.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""The options by which Spark uses the class, where its jar is on the class path."""


def local_files_jar() -> Path:
    """Where the jar is, or would be; another source or another Spark has a jar of its own."""
    content = hashlib.sha256(_SOURCE.read_bytes() + pyspark.__version__.encode()).hexdigest()
    return Path(sys.prefix) / "share" / "penstock" / f"local-files-{content[:12]}.jar"


def compile_local_files(spark: SparkSession, jar: Path | None = None) -> Path:
    """Compiles the class with the compiler in Spark's JVM; the jar appears whole or not at all."""
    jar = jar or local_files_jar()
    jar.parent.mkdir(parents=True, exist_ok=True)
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    with tempfile.TemporaryDirectory(prefix=".local-files-", dir=jar.parent) as folder:
        classes = Path(folder) / "classes"
        classes.mkdir()
        compiler = jvm.org.codehaus.janino.Compiler()
        compiler.setDestinationDirectory(jvm.java.io.File(str(classes)), False)
        sources = gateway.new_array(jvm.java.io.File, 1)
        sources[0] = jvm.java.io.File(str(_SOURCE))
        compiler.compile(sources)
        unfinished = Path(folder) / jar.name
        with zipfile.ZipFile(unfinished, "w") as archive:
            for file in sorted(classes.rglob("*.class")):
                # Without times and owners, the same classes give the same jar.
                archive.writestr(zipfile.ZipInfo(str(file.relative_to(classes))), file.read_bytes())
        unfinished.chmod(0o644)
        os.replace(unfinished, jar)
    return jar
