"""An S3 server on a folder: versitygw, built once with Go's own tool and kept."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pyarrow.fs import FileSelector, FileType, S3FileSystem
from tests.servers.base import HOST, PASSWORD, USER, Server, Unavailable, answers, die_with, free_port, server_cache

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSION = "v1.8.0"
_MODULE = f"github.com/versity/versitygw/cmd/versitygw@{_VERSION}"
_REQUEST = re.compile(r"^\S+ (\S+) \[[^]]*\] \S+ \S+ \S+ s3_(\w+) (\S+) \S+ (\d+) ")
_QUICKLY = "-gcflags=all=-N -l"
"""Compiled without being optimised, which takes half of the time, and for tests it is quick enough."""
REGION = "us-east-1"


class S3(Server):
    """An object store with one account; each test has a bucket of its own."""

    title: ClassVar[str] = "S3"

    def __init__(self) -> None:
        self._program = _versitygw()
        super().__init__()
        self.port = free_port()
        self.endpoint = f"http://{HOST}:{self.port}"
        self.access_key, self.secret_key, self.region = USER, PASSWORD, REGION
        self._numbers = itertools.count(1)
        self._log = self.folder / "access.log"

    def start(self) -> None:
        # Object attributes go into files of their own: not every temporary folder can hold them.
        objects, attributes = self.folder / "objects", self.folder / "attributes"
        for folder in (objects, attributes):
            folder.mkdir(exist_ok=True)
        command = [str(self._program), "--port", f"{HOST}:{self.port}", "--region", self.region, "--quiet"]
        command += ["--access-log", str(self._log)]
        keys = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        self.launch([*command, "posix", "--sidecar", str(attributes), str(objects)], lambda: answers(self.port), keys)

    def restart(self) -> None:
        """Ends it in order and starts it again with the same port and data."""
        self.end()
        self.start()

    def filesystem(self) -> S3FileSystem:
        """The store as Arrow sees it: paths start with the bucket."""
        return S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            region=self.region,
            scheme="http",
            endpoint_override=f"{HOST}:{self.port}",
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )

    def hadoop_options(self, bucket: str) -> dict[str, str]:
        """Options of Hadoop for one bucket; prefix them with `spark.hadoop.` where Spark is started."""
        options = {
            "endpoint": self.endpoint,
            "endpoint.region": self.region,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            "access.key": self.access_key,
            "secret.key": self.secret_key,
        }
        return {f"fs.s3a.bucket.{bucket}.{key}": value for key, value in options.items()}

    def introduce(self, spark: SparkSession, bucket: str) -> None:
        """Tells a running session where the bucket is."""
        jsc = spark.sparkContext._jsc
        assert jsc is not None
        for key, value in self.hadoop_options(bucket).items():
            jsc.hadoopConfiguration().set(key, value)

    def create_bucket(self) -> str:
        bucket = f"bucket-{next(self._numbers)}"
        self.filesystem().create_dir(bucket)
        return bucket

    def drop_bucket(self, bucket: str) -> None:
        """With all that is in it, on the disk: the server refuses folders that are not empty yet."""
        for kind in ("objects", "attributes"):
            shutil.rmtree(self.folder / kind / bucket, ignore_errors=True)

    def files(self, bucket: str) -> list[str]:
        """The names of all objects in a bucket."""
        found = self.filesystem().get_file_info(FileSelector(bucket, recursive=True))
        return sorted(info.path.removeprefix(f"{bucket}/") for info in found if info.type == FileType.File)

    def requests(self, bucket: str) -> list[tuple[str, str, str]]:
        """What was asked of a bucket, in order: the operation, the key, and the answer's status."""
        found = [_REQUEST.search(line) for line in self._log.read_text("utf-8").splitlines()]
        return [(match[2], match[3], match[4]) for match in found if match and match[1] == bucket]


def _versitygw() -> Path:
    target = server_cache() / f"versitygw-{_VERSION}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".versitygw.lock").open("w") as lock:
        # Whoever else builds it meanwhile is waited for.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _build(target)
    return target


def build_ahead() -> None:
    """Begins to build it while other tests run, as it takes minutes, in a process that makes room for all others."""
    if shutil.which("go") is not None and not (server_cache() / f"versitygw-{_VERSION}").exists():
        subprocess.Popen(
            ["nice", "-n", "15", sys.executable, "-m", "tests.servers.s3"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
            preexec_fn=die_with(os.getpid(), signal.SIGKILL),
        )


def _build(target: Path) -> None:
    """Go checks the source against the public checksum database."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable("no `go` on the PATH to build versitygw with")
    with tempfile.TemporaryDirectory(prefix=".versitygw-", dir=target.parent) as folder:
        env = {**os.environ, "GOBIN": folder}
        done = subprocess.run(
            [go, "install", _QUICKLY, _MODULE], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise Unavailable(f"go install failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
        (Path(folder) / "versitygw").replace(target)


if __name__ == "__main__":
    with suppress(Unavailable):
        _versitygw()
