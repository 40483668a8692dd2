"""Published data: fetched from a server or a mirror, checked, and found by the loaders."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import shlex
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from threading import Thread

import pytest
from click.testing import CliRunner, Result
from places import ROOT
from test_datasets import balance_lines

from inference_lab.cli import main
from inference_lab.data import datasets, folders
from inference_lab.data import published as module
from inference_lab.data.published import (
    PublishedFile,
    PublishedSet,
    choose,
    find_published,
    published,
)
from inference_lab.problems.instances import available_instances, find

CONTENT = "\n".join(balance_lines()).replace("L", "B", 1).replace("L", "R", 1).encode()
PATH = "uci/balance-scale.data"


class Server(ThreadingHTTPServer):
    """A server of files in memory, which breaks off its first answers halfway."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.broken = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.server.broken:
            self.server.broken -= 1
            content = content[: len(content) // 2]
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set an empty cache and no other folder; attempts follow each other at once."""
    for name in ("INFERENCE_LAB_DATA", "INFERENCE_LAB_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    return tmp_path / "cache" / "inference-lab" / "data"


def register(monkeypatch: pytest.MonkeyPatch, url: str, content: bytes = CONTENT) -> None:
    """Make a set of one file the only one that is published."""
    file = PublishedFile(PATH, len(content), hashlib.sha256(content).hexdigest(), url)
    one = PublishedSet("uci", "CC-BY-4.0", "Somebody (1994)", "https://there.org/balance", (file,))
    monkeypatch.setattr(module, "published", lambda: {"balance": one})


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["data", *map(str, arguments)])


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_fetched_file_is_found_without_a_folder(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was fetched is not fetched again."""
    register(monkeypatch, f"{server.address}/there.data")
    with pytest.raises(folders.DataNotFoundError, match=r"inference-lab data fetch balance .*"):
        datasets.load("balance")
    server.files["/there.data"] = CONTENT
    done = call("fetch", "uci")
    assert done.exit_code == 0, done.output
    assert f"1 files fetched into {cache}, 0 were there already" in done.stdout
    assert "CC-BY-4.0: Somebody (1994)" in done.stderr
    assert files_below(cache) == [cache / PATH]
    assert datasets.load("balance").features.shape == (625, 4)
    assert "0 files fetched" in call("fetch", "balance").stdout
    assert server.asked == ["/there.data"]


def test_a_wrong_checksum_is_refused(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, f"{server.address}/there.data")
    server.files["/there.data"] = CONTENT.replace(b"R", b"L")
    done = call("fetch", "balance")
    assert done.exit_code == 2
    assert "1 of 1 files not fetched" in done.stderr and "hash" in done.stderr
    assert files_below(cache) == []


def test_an_answer_that_breaks_off_is_repeated(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two repetitions are made, and nothing is left of what broke off."""
    register(monkeypatch, f"{server.address}/there.data")
    server.files["/there.data"] = CONTENT
    server.broken = 3
    assert call("fetch", "balance").exit_code == 2
    assert files_below(cache) == []
    server.broken = 2
    assert call("fetch", "balance").exit_code == 0
    assert (cache / PATH).read_bytes() == CONTENT
    assert len(server.asked) == 6


@pytest.mark.parametrize("by", ["option", "variable", "address"])
def test_a_mirror_serves_instead(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    register(monkeypatch, "http://127.0.0.1:1/nowhere")
    mirror = tmp_path / "mirror #1"
    (mirror / "uci").mkdir(parents=True)
    (mirror / PATH).write_bytes(CONTENT)
    server.files[f"/copy/{PATH}"] = CONTENT
    options = {
        "option": ["--mirror", mirror],
        "variable": [],
        "address": ["--mirror", f"{server.address}/copy/"],
    }
    monkeypatch.setenv("INFERENCE_LAB_MIRROR", str(mirror) if by == "variable" else "none")
    done = call("fetch", "balance", "--data-dir", tmp_path / "mine", *options[by])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "mine" / PATH).read_bytes() == CONTENT
    assert len(server.asked) == (by == "address")


def test_failures_name_the_remedy(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No network, no such file, a mirror without it, a name that is unknown, no address."""
    register(monkeypatch, "http://127.0.0.1:1/nowhere")
    done = call("fetch", "balance")
    assert done.exit_code == 2
    assert re.search(r"cannot connect to http://127.* --mirror or \$INFERENCE_LAB_M", done.stderr)
    register(monkeypatch, f"{server.address}/gone")
    assert "404" in call("fetch", "all").stderr
    assert "No such file" in call("fetch", "balance", "--mirror", tmp_path).stderr
    assert "did you mean 'balance'" in call("fetch", "blance").stderr
    register(monkeypatch, "")
    assert f"by hand from https://there.org/balance to {cache}" in call("fetch", "balance").stderr
    with pytest.raises(folders.DataNotFoundError, match=r"by hand from https://there\.org/bal"):
        datasets.load("balance")
    assert files_below(cache) == []


def test_another_file_of_the_same_name_is_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, "http://127.0.0.1:1/nowhere")
    (cache / "uci").mkdir(parents=True)
    (cache / PATH).write_bytes(b"mine")
    assert "remove it to fetch it again" in call("fetch", "balance").stderr
    assert (cache / PATH).read_bytes() == b"mine"
    (cache / PATH).unlink()
    (cache / f"{PATH}.gz").write_bytes(gzip.compress(CONTENT))
    assert "1 were there already" in call("fetch", "balance").stdout
    assert datasets.load("balance").n_points == 625


@pytest.mark.parametrize("member", ["../../evil.data", "/evil.data", "folder/balance.data"])
def test_only_the_member_leaves_an_archive(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, member: str
) -> None:
    """Whatever the names in an archive, one file is written, at the path of the registry."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in {member, "../other.data", "/other.data"}:
            archive.writestr(name, CONTENT)
    register(monkeypatch, f"{server.address}/a.zip#{member}")
    for content, reason in ((packed.getvalue()[:300], "no zip"), (b"x", "no zip")):
        server.files["/a.zip"] = content
        assert reason in call("fetch", "balance").stderr
    server.files["/a.zip"] = packed.getvalue()
    assert call("fetch", "balance").exit_code == 0
    assert files_below(tmp_path) == [cache / PATH]
    assert (cache / PATH).read_bytes() == CONTENT
    (cache / PATH).unlink()
    register(monkeypatch, f"{server.address}/a.zip#{member}", CONTENT[:100])
    assert "hash" not in call("fetch", "balance").stderr  # never more than its size is unpacked
    assert (cache / PATH).stat().st_size == 100


def test_the_folder_and_its_reason(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = [call("path")]
    monkeypatch.setenv("INFERENCE_LAB_DATA", str(tmp_path / "own"))
    shown += [call("path"), call("path", "--data-dir", tmp_path / "given")]
    assert [one.stdout for one in shown] == [
        f"{cache}\n",
        f"{tmp_path / 'own'}\n",
        f"{tmp_path / 'given'}\n",
    ]
    reasons = ["(the cache of this user)\n", "($INFERENCE_LAB_DATA)\n", "(--data-dir)\n"]
    assert [one.stderr for one in shown] == reasons


def test_the_table_fits_a_terminal(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (cache / "uci").mkdir(parents=True)
    (cache / "uci" / "sat.trn.gz").write_bytes(b"")
    lines = call("list").stdout.split("\n\n")[0].splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[1:]] == list(published())
    (row,) = (line for line in lines if line.startswith("satellite "))
    assert re.match(r"satellite +uci +1/2 +769.0 kB +CC-BY-4.0 +archive", row)
    listed = json.loads(call("list", "--json").stdout)
    assert listed["sets"]["satellite"]["present"] == 1
    assert listed["sets"]["satellite"]["files"][1][0] == "uci/sat.tst"


def test_two_commands_repeat_a_row_of_a_report(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page for it has the energies of the records."""
    page = (ROOT / "docs/howto/published-data.md").read_text(encoding="utf-8")
    block = page.split("```")[1].replace("\\\n", "")
    fetching, comparing = re.findall(r"^inference-lab (.+)$", block, re.M)
    monkeypatch.setenv("INFERENCE_LAB_MIRROR", str(data_dir))
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, shlex.split(fetching)).exit_code == 0
    done = CliRunner().invoke(main, [*shlex.split(comparing), "--json", "--quiet"])
    energies = [run["energy"] for run in json.loads(done.stdout)["records"]]
    assert len(energies) == 2
    assert all(f"{energy:.3f}" in page for energy in energies)


def test_files_of_the_loaders_are_registered() -> None:
    """Paths stay in the data folder, checksums are complete, and those of instances agree."""
    paths = {file.path: file for one in published().values() for file in one.files}
    for path, file in paths.items():
        assert PurePosixPath(path).parts[0] in ("uci", "text", "image", "map")
        assert ".." not in path
        is_hash = re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        assert is_hash and file.size > 0 if file.url else not file.sha256
        assert re.match(r"https://raw\.githubusercontent\.com/.+?/.+?/[0-9a-f]{40}/|$", file.url)
    by_hand = {name for name, one in published().items() if one.by_hand}
    assert by_hand == {"new-thyroid", "news"}
    assert choose(["text", "k1a", "news"]) == ["classic3", "k1a", "news"]
    assert set(choose(["all"])) == published().keys() - by_hand
    for name in map(find, available_instances()):
        pairs = [(name.file, name.sha256), (name.evidence, name.evidence_sha256)]
        for path, digest in (pair for pair in pairs if pair[0]):
            plain = paths.get(f"map/{path}")
            assert plain is None or plain.sha256 == digest
            assert plain or {f"map/{path}.gz", f"map/{path}.xz"} & paths.keys()
    for name in ("text/classic3.mat", "text/k1a_sparse.txt", "image/outex/017.png"):
        with pytest.raises(folders.DataNotFoundError, match="data fetch"):
            find_published(name)
    for one in datasets._REGISTRY.values():
        if isinstance(one, datasets._Files):
            assert {f"uci/{file}" for file in one.files} <= paths.keys()
