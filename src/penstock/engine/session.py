"""The Spark session of this process: one JVM, one session, options that suit a small machine."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.components.shared.s3 import session_options
from penstock.engine.jars import jars_of
from penstock.engine.jvm import Jvm, JvmOptions
from penstock.engine.packages import package_jars
from penstock.engine.spark.local_files import LOCAL_FILES, compile_local_files, local_files_jar
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FIXED = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Rows are counted and checked before any filter, so filters must not reach into the readers.
    "spark.sql.json.filterPushdown.enabled": "false",
    "spark.sql.csv.filterPushdown.enabled": "false",
    "spark.sql.csv.parser.columnPruning.enabled": "false",
    # A query may read its inputs, not files named in it.
    "spark.sql.runSQLOnFiles": "false",
    # `${env:NAME}` in SQL would be a variable of the process.
    "spark.sql.variable.substitute": "false",
    # Row counts are read from the plan as it runs; a plan that is rewritten on the way would lose them.
    "spark.sql.adaptive.enabled": "false",
    # The driver is this process, whatever the master.
    "spark.submit.deployMode": "client",
}
"""Options that Penstock's promises rest on: they cannot be set from outside."""
AUTHENTICATE = "spark.authenticate"
DEFAULTS = {
    "spark.python.daemon.module": "penstock.engine.worker_daemon",
    # Spark starts a daemon for each set of variables, and sets one more for some Python functions if this is on: with
    # it, a stateful step would have other workers than the rest.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Columns travel to Python and back in larger pieces than Spark's 10,000 rows: a fifth less time per row.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.cleaner.referenceTracking.cleanCheckpoints": "false",
}
_LOCAL_ONLY = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Driver and executor are one process. It cannot be lost, but after the time of day was set it would seem so.
    "spark.storage.blockManagerHeartbeatTimeoutMs": "30d",
}
_OF_A_PROCESS = frozenset({"spark.master", "spark.local.dir", "spark.sql.warehouse.dir"})
"""Options that may differ between sessions that share a JVM one after the other: places for what is temporary."""
_WITH_OWN_SECRETS = ("yarn", "k8s://")
"""Masters for which Spark hands the secret of an application to its executors by itself."""


@dataclass(frozen=True)
class SessionOptions:
    """What an operator may choose: master, memory, Spark options and packages, as with spark-submit."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str | None = None
    packages: Sequence[str] = ()
    jars: Sequence[str] = ()
    """Sets of jars, by their names in `penstock.engine.jars`."""
    locked: Mapping[str, str] = field(default_factory=dict)
    """Jars of packages with their sha256: only these, unchanged, are loaded, and nothing is resolved."""
    hidden: Sequence[str] = ()
    """Values of secrets, kept out of the log."""
    scratch: Path | None = None
    log: Path | None = None
    take_line: Callable[[str], None] | None = None
    """Called with each line of the log, instead of writing it to the file `log`."""
    quick: bool = False
    archive_to: Path | None = None


_current: Session | None = None
"""The session of this process."""


class Session:
    """A Spark session together with the JVM it lives in. PySpark knows one for each process, and so there is one."""

    def __init__(self, options: SessionOptions) -> None:
        global _current
        self.jvm: Jvm
        self._own_scratch = options.scratch is None
        self.scratch = options.scratch or Path(tempfile.mkdtemp(prefix="penstock-"))
        self.log = options.log or self.scratch / "spark.log"
        atexit.register(self._remove_scratch)
        try:
            conf = spark_conf(options, self.scratch)
            _refuse_second()
            self._held = _held_for(options, conf)
            self.jvm = (
                self._held.jvm
                if self._held is not None
                else Jvm(
                    JvmOptions(
                        scratch=self.scratch,
                        log=self.log,
                        conf=conf,
                        memory=options.driver_memory or default_memory(),
                        packages=options.packages,
                        hidden=options.hidden,
                        take_line=options.take_line,
                        quick=options.quick,
                        archive_to=options.archive_to,
                    )
                )
            )
        except BaseException:
            self._remove_scratch()
            raise
        self.options, self.conf = options, conf
        self.spark = self._connect(options) if self._held is None else self._held.lent(conf, self.log)
        _current = self

    def fits(self, options: SessionOptions, conf: Mapping[str, str]) -> bool:
        """Whether this session can be used for one with these options, which may need some of its own from Java on."""
        needs_own_java = (
            options.packages or options.locked or options.jars or options.hidden or options.take_line
            or options.archive_to
        )  # fmt: skip
        if needs_own_java or not self.usable:
            return False
        alike = (options.master, options.driver_memory) == (self.options.master, self.options.driver_memory)
        if not alike and not (options.quick and is_local(options.master)):
            return False
        return all(key in _OF_A_PROCESS or self.spark.conf.isModifiable(key) for key in self._differing(conf))

    def _differing(self, conf: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in conf.items() if self.conf.get(key) != value}

    def lent(self, conf: Mapping[str, str], log: Path) -> SparkSession:
        """The session for another one that it fits, with its options and its log."""
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        for key, value in self._differing(conf).items():
            if key not in _OF_A_PROCESS:
                self.spark.conf.set(key, value)
        jvm: Any = self.spark._jvm
        jvm.java.lang.System.setProperty("penstock.log", str(log))
        jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure()
        return self.spark

    @property
    def usable(self) -> bool:
        """Whether it can be worked with: after an error in its scheduler a context is stopped, and Java lives on."""
        try:
            return self.jvm.alive and not self.spark._jsc.sc().isStopped()
        except Exception:
            return False

    def _connect(self, options: SessionOptions) -> SparkSession:
        from pyspark.sql import SparkSession

        # Workers of a cluster may have their Python elsewhere.
        os.environ["PYSPARK_PYTHON"] = options.conf.get("spark.pyspark.python", sys.executable)
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(self.jvm.port), "PYSPARK_GATEWAY_SECRET": self.jvm.secret}
        try:
            spark = SparkSession.builder.getOrCreate()
            _silence_lost_counts(spark)
            if is_local(options.master) and not local_files_jar().exists():
                # For the sessions after this one; without it, or where nothing can be written, Spark is only slower.
                with suppress(Exception):
                    compile_local_files(spark)
            return spark
        except Exception as error:
            # The text of a Java error is fetched from the JVM, so it is asked for while there is one.
            reason = _java_reason(str(error)) if self.jvm.alive else "it ended while starting"
            if "stopped SparkContext" in reason:
                reason = f"the master {options.master} does not answer"
            self.jvm.kill()
            self._remove_scratch()
            raise PenstockError.of("JVM_FAILED", reason=reason, log=self.log) from error
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]

    def stop(self) -> None:
        """Ends session and JVM, and removes what was temporary."""
        try:
            if self.jvm.alive:
                self.spark.stop()
        finally:
            self.jvm.stop()
            _forget(self)
            self._remove_scratch()

    def kill(self) -> None:
        self.jvm.kill()
        _forget(self)
        self._remove_scratch()

    def _remove_scratch(self) -> None:
        jvm = getattr(self, "jvm", None)
        if jvm is not None and jvm.alive:
            jvm.kill()
        keep = None if self._own_scratch else self.log
        if keep is None or self.scratch not in keep.parents:
            shutil.rmtree(self.scratch, ignore_errors=True)
        held = getattr(self, "_held", None)
        if held is not None:
            held._remove_scratch()


_standby: Session | None = None


def hold(session: Session) -> None:
    """Keeps an open session for the next one that is asked for, which is this one if it fits."""
    global _standby
    _standby = session


def _held_for(options: SessionOptions, conf: Mapping[str, str]) -> Session | None:
    """The session that was kept, if it fits; else it ends."""
    global _standby
    held, _standby = _standby, None
    if held is None or held.fits(options, conf):
        return held
    held.kill()
    return None


def _refuse_second() -> None:
    """PySpark would hand out the session that is there, and end it when the second one is stopped."""
    if _current is None or _current is _standby:
        return
    if _current.usable:
        raise RuntimeError("this process has a Spark session already")
    _forget(_current)


def _forget(session: Session) -> None:
    """Lets PySpark forget a session that has ended, and the gateway to it, so that a later one can have its own."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    global _current
    if session is _current:
        _current = None
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None


def _silence_lost_counts(spark: SparkSession) -> None:
    """When the JVM dies, the server that takes the counts of tasks would print a stack trace; the run tells it."""
    server: Any = spark.sparkContext._accumulatorServer
    told = server.handle_error

    def handle_error(request: object, address: object) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            told(request, address)

    server.handle_error = handle_error


def _java_reason(message: str) -> str:
    """The sentence in a Java error that says what happened: the innermost cause."""
    causes = re.findall(r"^(?:Caused by: |: )[\w.$]+(?:Exception|Error): (.+)$", message, re.MULTILINE)
    return causes[-1] if causes else (message.splitlines() or ["unknown"])[0]


def spark_conf(options: SessionOptions, scratch: Path) -> dict[str, str]:
    """All Spark options of a run; refuses those that would break a promise."""
    for key in options.conf:
        if key in FIXED:
            advice = "Leave it out; everything else of Spark's options may be given."
            raise PenstockError.of("CONF_NOT_ALLOWED", key=key, reason="Penstock relies on it", advice=advice)
    local = is_local(options.master)
    defaults = dict(DEFAULTS)
    if makes_secret(options.master):
        defaults[AUTHENTICATE] = "true"
    if local:
        defaults |= _LOCAL_ONLY
        if local_files_jar().exists():
            defaults |= LOCAL_FILES
        # On a cluster each worker knows its own disk.
        defaults["spark.local.dir"] = str(scratch)
    return {
        **defaults,
        "spark.app.name": "penstock",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **(session_options(os.environ) if "s3" in options.jars else {}),
        **options.conf,
        **_jar_conf(options),
        **FIXED,
        "spark.master": options.master,
    }


def _jar_conf(options: SessionOptions) -> dict[str, str]:
    """Puts jars on the class path, where the service loader and Hadoop look, and sends them to workers.

    Those of packages are loaded as Spark loads the packages that it resolves itself.
    """
    own = [str(jar) for jar in jars_of(options.jars)]
    if is_local(options.master) and local_files_jar().exists():
        own.append(str(local_files_jar()))
    packages = [str(jar) for jar in package_jars(options.locked, options.conf)]
    places = {
        "spark.driver.extraClassPath": (os.pathsep, own),
        "spark.jars": (",", [*([] if is_local(options.master) else own), *packages]),
    }
    given = {key: [options.conf[key]] if options.conf.get(key) else [] for key in places}
    return {key: separator.join([*given[key], *paths]) for key, (separator, paths) in places.items() if paths}


def makes_secret(master: str) -> bool:
    """Whether Spark makes a secret for each run, and nobody has to pass it on: its ports then refuse everybody else.

    In one process it never leaves the JVM. Masters and workers of a standalone cluster must know the secret that the
    driver has, so there the operator sets it.
    """
    return is_local(master) or master.startswith(_WITH_OWN_SECRETS)


def is_local(master: str) -> bool:
    """Whether everything runs in this process; `local-cluster` starts workers."""
    return master == "local" or master.startswith("local[")


def cores(master: str) -> int:
    """How many tasks of a local master run at once; 2 for a cluster, where the pipeline should say."""
    if not is_local(master):
        return 2
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    if inside == "*":
        return os.cpu_count() or 1
    return int(inside) if inside.isdigit() else 1


def default_memory() -> str:
    """A quarter of the machine's memory, between 1 and 4 GiB."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return "1g"
    return f"{min(max(total // 4, 1 << 30), 4 << 30) >> 20}m"
