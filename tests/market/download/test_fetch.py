"""One file over a bad line."""

from __future__ import annotations

import errno
import hashlib
import io
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market.download.fetch import Fetcher, NotThereError
from tests.market.download.server import Archive, serve

CONTENT = np.random.default_rng(0).bytes(1_000_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def archive() -> Iterator[Archive]:
    with serve() as running:
        running.files["/f"] = CONTENT
        yield running


def fetcher(**settings: float) -> Fetcher:
    return Fetcher(**{"timeout": 5.0, "tries": 4, **settings})  # type: ignore[arg-type]


def test_a_file_comes_whole(archive: Archive, tmp_path: Path) -> None:
    fetcher().file(f"{archive.url}/f", tmp_path / "new" / "f", SHA)
    assert (tmp_path / "new" / "f").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["f"]


def test_a_cut_connection_goes_on_where_it_ended(archive: Archive, tmp_path: Path, pauses: list[float]) -> None:
    archive.faults["/f"] = ["cut 327680", "cut 491520"]
    fetcher().file(f"{archive.url}/f", tmp_path / "f", SHA)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert archive.asked("/f") == [None, "bytes=327680-", "bytes=819200-"]
    assert pauses == [1.0, 2.0]


def test_a_later_process_goes_on_from_the_part(archive: Archive, tmp_path: Path) -> None:
    archive.faults["/f"] = ["cut 409600"]
    with pytest.raises(DataError, match=r"/f failed 1 times \(.*409600 bytes read, 590400 more expected"):
        fetcher(tries=1).file(f"{archive.url}/f", tmp_path / "f", SHA)
    assert [path.name for path in tmp_path.iterdir()] == [".f.part"]
    fetcher().file(f"{archive.url}/f", tmp_path / "f", SHA)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert archive.asked("/f") == [None, "bytes=409600-"]


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        (b"x" * 1000, ["bytes=1000-", None]),  # of another version
        (CONTENT, []),
        (CONTENT + b"more", ["bytes=1000004-", None]),
    ],
)
def test_a_part_is_gone_on_from_where_it_fits(
    archive: Archive, tmp_path: Path, part: bytes, asked: list[str | None]
) -> None:
    (tmp_path / ".f.part").write_bytes(part)
    fetcher().file(f"{archive.url}/f", tmp_path / "f", SHA)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert archive.asked("/f") == asked


def test_a_server_without_ranges_sends_all_of_it_again(archive: Archive, tmp_path: Path) -> None:
    archive.ranges = False
    archive.faults["/f"] = ["cut 327680"]
    fetcher().file(f"{archive.url}/f", tmp_path / "f", SHA)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert archive.asked("/f") == [None, "bytes=327680-"]


def test_what_does_not_fit_its_checksum_is_not_kept(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"/f does not fit its checksum \(SHA-256 {SHA[:12]}…, not 0{{12}}…\)"):
        fetcher().file(f"{archive.url}/f", tmp_path / "f", "0" * 64)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", [500, 503, "drop"])
def test_a_passing_failure_is_tried_again(archive: Archive, tmp_path: Path, fault: int | str) -> None:
    archive.faults["/f"] = [fault, fault]
    fetcher().file(f"{archive.url}/f", tmp_path / "f", SHA)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert len(archive.seen) == 3


def test_the_server_says_how_long_to_wait(archive: Archive, pauses: list[float]) -> None:
    archive.faults["/f"] = [429, 503]
    assert fetcher().small(f"{archive.url}/f") == CONTENT
    assert pauses == [7.0, 7.0]


def test_a_wait_that_cannot_be_read_is_none(archive: Archive, pauses: list[float]) -> None:
    archive.faults["/f"], archive.retry_after = [503], "soon"
    assert fetcher().small(f"{archive.url}/f") == CONTENT
    assert pauses == [1.0]


def test_a_stalled_server_is_left(archive: Archive) -> None:
    archive.faults["/f"] = ["stall"]
    assert fetcher(timeout=0.2).small(f"{archive.url}/f") == CONTENT


def test_a_lasting_failure_is_one_sentence(archive: Archive) -> None:
    archive.faults["/f"] = [500] * 4
    with pytest.raises(DataError, match=r"/f failed 4 times \(500 Internal Server Error\); try again later"):
        fetcher().small(f"{archive.url}/f")
    assert len(archive.seen) == 4


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_not_tried_again(archive: Archive, status: int) -> None:
    archive.faults["/f"] = [status]
    with pytest.raises(DataError, match=rf"/f is refused \({status} "):
        fetcher().small(f"{archive.url}/f")
    assert len(archive.seen) == 1


def test_what_is_not_there_is_told_apart(archive: Archive) -> None:
    with pytest.raises(NotThereError):
        fetcher().small(f"{archive.url}/g")
    assert len(archive.seen) == 1


def test_who_is_offline_learns_it_at_once_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(DataError, match=rf"^{where} cannot be reached \(Connection refused\); check the network, "):
            fetcher().file(f"http://{where}/f", tmp_path / "f", SHA)

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(DataError, match=r"^data\.example cannot be reached \(Name or service not known\)"):
        fetcher().small("https://data.example/f")
    assert pauses == []
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_at_once_and_the_rest_comes_later(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    class Full(io.FileIO):
        def write(self, data: object) -> int:
            if self.tell() > 400_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda self, mode, **_: Full(self, mode))
        with pytest.raises(DataError, match=r"cannot be written to \(No space left on device\); free some space, or"):
            fetcher().file(f"{archive.url}/f", tmp_path / "f", SHA)
    assert pauses == []
    assert not (tmp_path / "f").exists()
    have = (tmp_path / ".f.part").stat().st_size
    fetcher().file(f"{archive.url}/f", tmp_path / "f", SHA)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert archive.asked("/f") == [None, f"bytes={have}-"]


def test_a_folder_that_is_a_file_is_told(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(DataError, match=r"out cannot be written to"):
        fetcher().file(f"{archive.url}/f", tmp_path / "out" / "f", SHA)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="tries 0"):
        Fetcher(tries=0)
