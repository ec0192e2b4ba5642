"""The files sink in an object store: the same promises, nothing renamed, and troubles in words."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.components.test_files_sink import batch, frame
from tests.servers.base import free_port
from tests.servers.fixtures import missing
from tests.servers.s3 import S3

from penstock import read_files
from penstock.components.base import ReadContext, SinkContext, SinkWriter
from penstock.components.formats.text import Text
from penstock.components.shared.checksum import Content, python_sum
from penstock.components.shared.manifests import FOLDER
from penstock.components.shared.place import Place
from penstock.components.shared.s3 import S3 as Setting
from penstock.components.shared.s3 import Access, access, failure, session_options
from penstock.components.shared.storage import S3Storage
from penstock.components.shared.task_files import partition_folder, shard
from penstock.components.sinks.files import Files
from penstock.components.sources.files import Files as FilesSource
from penstock.engine.jars import jars_of
from penstock.errors import PenstockError
from penstock.testing.processes import until

pytestmark = pytest.mark.spark

COLUMNS = {"id": "string", "n": "int"}


@dataclass(frozen=True)
class Bucket:
    """An empty bucket and sinks that write to it."""

    spark: SparkSession
    s3: S3
    name: str

    @property
    def path(self) -> str:
        return f"s3a://{self.name}/out"

    @property
    def setting(self) -> Setting:
        return Setting(endpoint=self.s3.endpoint, access_key=self.s3.access_key, secret_key=self.s3.secret_key)

    @property
    def store(self) -> S3Storage:
        return S3Storage(access(self.path, self.setting))

    def open(
        self, epoch: int = 1, lineage: str = "l1", columns: dict[str, str] | None = None, **config: Any
    ) -> SinkWriter:
        sink = Files(**{"path": self.path, "s3": self.setting, **config})
        return sink.open(SinkContext(self.spark, "out", Path(), "demo", lineage, epoch, columns or COLUMNS))

    def stored(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in read_files(self.spark, self.path).collect())


@pytest.fixture
def bucket(spark: SparkSession, s3: S3, s3_bucket: str) -> Bucket:
    try:
        jars_of(["s3"])
    except PenstockError as error:
        missing("s3a", error.problems[0].message)
    return Bucket(spark, s3, s3_bucket)


def test_a_batch_is_stored_once_and_nothing_is_ever_copied(bucket: Bucket) -> None:
    writer = bucket.open(compact=2, keep="0 seconds")
    for number in range(4):
        assert writer.write(batch(number), frame(bucket.spark, ("a", number), ("b", number))) is True
        assert writer.write(batch(number), frame(bucket.spark, ("other", 9))) is False
    again = bucket.open(epoch=2, compact=2)
    assert again.write(batch(3, epoch=2), frame(bucket.spark, ("other", 9))) is False
    assert bucket.stored() == [(name, number) for name in "ab" for number in range(4)]
    asked = bucket.s3.requests(bucket.name)
    counts = Counter(operation for operation, _, _ in asked)
    assert counts["PutObject"] > 10
    assert not [operation for operation in counts if "Copy" in operation]
    manifests = [key for operation, key, status in asked if operation == "PutObject" and FOLDER in key]
    assert len(manifests) == len(set(manifests)) == 7
    context = SinkContext(bucket.spark, "out", Path(), "demo", "l1", 1, {})
    held = Files(path=bucket.path, s3=bucket.setting).content(context, ["id", "n"])
    assert held == Content(8, sum(python_sum(name, number) for name in "ab" for number in range(4)))
    kept = [name for name in bucket.s3.files(bucket.name) if name.endswith(".parquet")]
    assert len(kept) == 1


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_values_come_back_after_merging(format: str, bucket: Bucket) -> None:
    columns = {"id": "string", "x": "double", "d": "decimal(10,2)", "day": "date", "at": "timestamp", "c": "string"}
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 678000)  # noqa: DTZ001 - as Spark gives it back
    texts = ['with, comma "quoted"\nand line', "", "ü", None]
    rows = [
        [(text, 0.1 + number, Decimal("12.30"), dt.date(2024, 1, 2), at, f"{number % 2}/ü %"), (None,) * 6]
        for number, text in enumerate(texts)
    ]
    writer = bucket.open(columns=columns, format=format, partition_by=("c",), compact=2)
    for number, some in enumerate(rows):
        writer.write(batch(number), bucket.spark.createDataFrame(some, schema))
    found = read_files(bucket.spark, bucket.path)
    assert found.columns == list(columns)
    expected = [row for some in rows for row in some]
    assert sorted(map(tuple, found.collect()), key=str) == sorted(expected, key=str)


def test_nested_values_come_back(bucket: Bucket) -> None:
    columns = {"tags": "array<string>", "m": "map<string,int>", "s": "struct<a:int,b:string>", "v": "variant",
               "y": "timestamp_ntz", "b": "binary", "a.b": "bigint"}  # fmt: skip
    rows = bucket.spark.sql(
        "SELECT array('x', null) AS tags, map('k', 1) AS m, named_struct('a', 1, 'b', 'z') AS s, "
        "parse_json('{\"q\": [1]}') AS v, TIMESTAMP_NTZ'2024-01-02 03:04:05.123456' AS y, X'00FF' AS b, 7L AS `a.b`"
    )
    writer = bucket.open(columns=columns, compact=2)
    for number in range(2):
        writer.write(batch(number), rows)
    found = read_files(bucket.spark, bucket.path)
    assert {item.name: item.dataType.simpleString() for item in found.schema.fields} == columns
    shown = ["tags", "m", "s", "to_json(v) AS v", "y", "b", "`a.b`"]
    assert found.selectExpr(*shown).collect() == rows.selectExpr(*shown).collect() * 2


def test_an_empty_batch_leaves_nothing(bucket: Bucket) -> None:
    writer = bucket.open()
    before = bucket.s3.files(bucket.name)
    assert writer.write(batch(0), frame(bucket.spark)) is True
    assert bucket.s3.files(bucket.name) == before
    with pytest.raises(PenstockError) as raised:
        bucket.stored()
    assert raised.value.code == "PATH_NOT_FOUND"


def test_entropy_spreads_the_files(bucket: Bucket) -> None:
    writer = bucket.open(entropy=True, partition_by=("id",))
    rows = [(f"k{number % 4}", number) for number in range(40)]
    writer.write(batch(0), frame(bucket.spark, *rows))
    files = [name for name in bucket.s3.files(bucket.name) if name.endswith(".parquet")]
    shards = [name.split("/")[1] for name in files]
    assert all(name.split("/")[1] == shard(name.rsplit("/", 1)[1]) for name in files)
    assert len(set(shards)) > 1
    assert bucket.stored() == sorted(rows)
    whole = bucket.spark.read.parquet(bucket.path)
    assert sorted((row["id"], row["n"]) for row in whole.collect()) == sorted(rows)


# --- who writes ----------------------------------------------------------------------------------------------


def test_an_older_run_is_fenced(bucket: Bucket) -> None:
    older = bucket.open(epoch=1)
    newer = bucket.open(epoch=2)
    newer.write(batch(0, epoch=2), frame(bucket.spark, ("new", 1)))
    with pytest.raises(PenstockError) as raised:
        older.write(batch(0), frame(bucket.spark, ("old", 1)))
    assert raised.value.code == "SINK_FENCED"
    with pytest.raises(PenstockError) as raised:
        bucket.open(lineage="l2")
    assert raised.value.code == "SINK_OF_ANOTHER_RUN"
    assert bucket.stored() == [("new", 1)]


def test_of_two_who_put_the_same_manifest_one_is_told(bucket: Bucket) -> None:
    store = bucket.store
    assert store.create("x/1.json", "first") is True
    assert store.create("x/1.json", "second") is False
    assert store.read("x/1.json") == "first"
    assert store.read("x/2.json") is None
    assert store.names("x") == ["1.json"]


def test_files_of_an_attempt_that_failed_are_not_stored(bucket: Bucket, tmp_path: Path) -> None:
    failed, found = tmp_path / "failed", bucket.store.access

    def fail_once(rows: Iterator[Any]) -> Iterator[Any]:
        """The task with the last row fails once the other one has written its file."""
        for some in rows:
            if 9 in some.column("n").to_pylist() and not failed.exists():
                until(lambda: [file for file in S3Storage(found).files("") if "batch=" in file.path], "a file", 60)
                failed.touch()
                raise ValueError("this attempt fails")
            yield some

    rows = bucket.spark.range(10, numPartitions=2).selectExpr("CAST(id AS string) AS id", "CAST(id AS int) AS n")
    writer = bucket.open()
    writer.data.discard = lambda folder: None  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="this attempt fails"):
        writer.write(batch(0), rows.mapInArrow(fail_once, "id string, n int"))
    left = [name for name in bucket.s3.files(bucket.name) if "batch=" in name]
    assert len(left) == 1
    writer.write(batch(0), rows.mapInArrow(fail_once, "id string, n int"))
    assert set(left) < set(bucket.s3.files(bucket.name))
    assert bucket.stored() == [(str(number), number) for number in range(10)]


def test_a_batch_that_fails_leaves_no_files(bucket: Bucket) -> None:
    bad = bucket.spark.range(4, numPartitions=4).selectExpr("IF(id = 3, raise_error('no'), 'a') AS id", "1 AS n")
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        bucket.open().write(batch(0), bad)
    assert not [name for name in bucket.s3.files(bucket.name) if "batch=" in name]


# --- troubles ------------------------------------------------------------------------------------------------


def code_of(bucket: Bucket, path: str, setting: Setting) -> tuple[str, str]:
    with pytest.raises(PenstockError) as raised:
        bucket.open(path=path, s3=setting)
    assert bucket.s3.secret_key not in str(raised.value)
    return raised.value.code, str(raised.value)


def test_troubles_are_told_at_once_and_in_words(bucket: Bucket) -> None:
    right = bucket.setting
    code, text = code_of(bucket, "s3a://no-such-bucket/out", right)
    assert (code, "bucket no-such-bucket" in text) == ("PATH_NOT_FOUND", True)
    code, text = code_of(bucket, bucket.path, right.model_copy(update={"secret_key": "wrong"}))
    assert (code, bucket.name in text) == ("SINK_DENIED", True)
    assert code_of(bucket, bucket.path, right.model_copy(update={"access_key": "nobody"}))[0] == "SINK_DENIED"
    nowhere = f"http://127.0.0.1:{free_port()}"
    code, text = code_of(bucket, bucket.path, right.model_copy(update={"endpoint": nowhere}))
    assert (code, nowhere in text, "refused" in text) == ("SINK_UNREACHABLE", True, True)


def test_a_bucket_that_goes_away_is_told_by_tasks_too(bucket: Bucket) -> None:
    writer = bucket.open()
    gone = access("s3a://no-such-bucket/out", bucket.setting)
    writer.data.place = Place("", gone)  # type: ignore[attr-defined]
    with pytest.raises(PenstockError) as raised:
        writer.write(batch(0), frame(bucket.spark, ("a", 1)))
    assert raised.value.code == "PATH_NOT_FOUND"


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ("status code: 503 Slow Down: <Code>SlowDown</Code><Message>Reduce</Message>", "SINK_FAILED", "Reduce"),
        ("status code: 301: <Code>PermanentRedirect</Code><Message>elsewhere</Message>", "SINK_FAILED", "`region`"),
        ("status code: 403 Forbidden", "SINK_DENIED", "403"),
    ],
)
def test_answers_of_a_store_are_told_apart(answer: str, code: str, words: str) -> None:
    told = failure(Exception(f"Generic S3 error: {answer}"), Access("b", "p")).told("out", 3)
    assert told.code == code
    assert words in str(told)


# --- where it is ---------------------------------------------------------------------------------------------


def test_address_and_keys_come_from_the_setting_then_spark_then_the_environment(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://env:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "env")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "env-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "env-token")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    path = "s3a://elsewhere/a/b/"
    found = access(path, Setting(), bucket.spark)
    assert found == Access("elsewhere", "a/b", "http://env:1", "eu-west-1", "env", "env-secret", "env-token")
    assert session_options(os.environ) == {
        "spark.hadoop.fs.s3a.endpoint": "http://env:1",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    bucket.s3.introduce(bucket.spark, "elsewhere")
    found = access(path, Setting(), bucket.spark)
    keys = (bucket.s3.access_key, bucket.s3.secret_key, None)
    assert found == Access("elsewhere", "a/b", bucket.s3.endpoint, bucket.s3.region, *keys)
    setting = Setting(region="eu-north-1", access_key="mine", secret_key="my-secret")
    found = access(path, setting, bucket.spark)
    assert found == Access("elsewhere", "a/b", bucket.s3.endpoint, "eu-north-1", "mine", "my-secret", None)
    assert "my-secret" not in repr(found)
    assert session_options({}) == {}


def test_files_in_an_object_store_are_read_with_keys_of_the_source(bucket: Bucket, tmp_path: Path) -> None:
    with bucket.s3.filesystem().open_output_stream(f"{bucket.name}/in/1.txt") as stream:
        stream.write(b"a\nb\n")
    context = ReadContext(bucket.spark, "lines", tmp_path, tmp_path / "spool", Text())
    path = f"s3a://{bucket.name}/in"
    with pytest.raises(PenstockError) as raised:
        FilesSource(path=path, s3=bucket.setting.model_copy(update={"secret_key": "wrong"})).read_all(context)
    assert raised.value.code == "SOURCE_DENIED"
    found = FilesSource(path=path, s3=bucket.setting).read_all(context)
    assert sorted(row[0] for row in found.collect()) == ["a", "b"]


# --- names of folders ----------------------------------------------------------------------------------------


@given(st.text(min_size=1))
def test_a_folder_of_a_partition_is_one_name_that_can_be_read_back(value: str) -> None:
    from urllib.parse import unquote

    folder = partition_folder("c", value)
    assert "/" not in folder
    assert folder.count("=") == 1
    if "\x00" not in value:
        assert unquote(folder.split("=")[1]) == value or "%" in value


def test_folders_of_partitions_are_as_spark_writes_them(bucket: Bucket, tmp_path: Path) -> None:
    values = [
        "plain",
        "a/b",
        "a b",
        "ü€",
        "q\"'#%*:=?\\{[]^",
        "..",
        "~+&$@!(),;<>|`",
        "tab\there",
        "new\nline",
        "",
        None,
    ]
    rows = bucket.spark.createDataFrame([(value, number) for number, value in enumerate(values)], "id string, n int")
    bucket.open(partition_by=("id",), format="json").write(batch(0), rows)
    rows.write.partitionBy("id").json(str(tmp_path / "plain"))
    mine = {name.split("/")[3] for name in bucket.s3.files(bucket.name) if "id=" in name}
    assert mine == {path.name for path in (tmp_path / "plain").glob("id=*")}
    found = {row["n"]: row["id"] for row in read_files(bucket.spark, bucket.path).collect()}
    assert found == {number: value or None for number, value in enumerate(values)}
    manifest = json.loads(bucket.store.read(f"{FOLDER}/000000000000.json") or "{}")
    assert len(manifest["files"]) >= len(values) - 1
