"""Recordings are found in files, folders, archives and standard input, and one that is bad stops no other."""

import bz2
import gzip
import importlib.util
import io
import lzma
import os
import struct
import sys
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.audit.trajectories.test_atif import SAMPLE

from turnwright_audit.trajectories.archives import Bounds, Problem
from turnwright_audit.trajectories.atif import Trajectory
from turnwright_audit.trajectories.files import Runs, runs
from turnwright_audit.trajectories.formats import format_named
from turnwright_audit.trajectories.source import Recording, partial_documents

MAGIC = [b"PK\x03\x04", b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\x00", b"{"]
NO_RUN = b'{"some": "settings"}'


def seen(read_runs: Runs) -> list[tuple[str, str | None]]:
    """Each file with the problem it has."""
    return [(run.file, run.found.message if isinstance(run.found, Problem) else None) for run in read_runs]


def names(read_runs: Runs, below: Path) -> list[str]:
    """The files that have runs, below a folder."""
    return [run.file.removeprefix(f"{below}{os.sep}") for run in read_runs if isinstance(run.found, Trajectory)]


def packed_zip(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def packed_tar(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


MEMBERS = {"b/one.json": SAMPLE, "a.json": NO_RUN, "../../two.json": SAMPLE, "picture.png": b"\x89PNG"}


def test_folder_is_read_recursively_in_order(tmp_path: Path) -> None:
    for name in ("b/c/one.json", "b/a.json", "a.jsonl", "c.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(SAMPLE)
    (tmp_path / "b" / "notes.md").write_text("none")
    (tmp_path / "b" / "settings.json").write_bytes(NO_RUN)
    read_runs = runs([tmp_path])
    assert names(read_runs, tmp_path) == ["a.jsonl", "b/a.json", "b/c/one.json", "c.json"]
    assert (read_runs.files, read_runs.skipped) == (4, 2)
    assert read_runs.done == read_runs.size()


def test_links_neither_loop_nor_repeat_a_file(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "one.json").write_bytes(SAMPLE)
    (outside / "two.json").write_bytes(SAMPLE)
    (inside / "again").symlink_to(inside)
    (inside / "copy.json").symlink_to(inside / "one.json")
    (inside / "gone.json").symlink_to(inside / "nothing")
    (inside / "out").symlink_to(outside)
    (outside / "back").symlink_to(inside)
    (outside / "self").symlink_to(outside)
    assert names(runs([inside]), inside) == ["one.json", "out/two.json"]


def test_file_at_several_paths_is_read_once(tmp_path: Path) -> None:
    folder, linked = tmp_path / "runs", tmp_path / "linked"
    for file in (folder / "one.json", folder / "notes.json", linked / "two.json"):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(NO_RUN if file.stem == "notes" else SAMPLE)
    (linked / "three.json").symlink_to(folder / "one.json")
    (linked / "four.json").symlink_to(folder / "one.json")
    paths: list[str | Path] = [linked, folder, f"{folder}/./one.json", folder / "notes.json", f"{folder}/"]
    read_runs = runs(paths)
    assert [Path(run.file).name for run in read_runs] == ["four.json", "two.json", "notes.json"]
    assert (read_runs.files, read_runs.skipped) == (2, 0)  # a file that is named is a problem, and not skipped


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    marked = b"\xef\xbb\xbf" + SAMPLE
    (tmp_path / "a.json").write_bytes(marked)
    (tmp_path / "b.zip").write_bytes(packed_zip({"in.json": marked}))
    assert names(runs([tmp_path]), tmp_path) == ["a.json", "b.zip:in.json"]


def test_each_unreadable_path_gives_a_message(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_bytes(b"")
    (tmp_path / "other.json").write_bytes(NO_RUN)
    (tmp_path / "good.json").write_bytes(SAMPLE)
    read_runs = runs([tmp_path / name for name in ("nothing.json", "empty.json", "other.json", "good.json")])
    problems = [problem for _, problem in seen(read_runs)]
    assert problems[0] == "No such file or directory"
    assert problems[1] == "it is empty"
    assert problems[2] is not None
    assert "its format is not known" in problems[2]
    assert problems[3:] == [None]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file of this system opens and cannot be read")
def test_unreadable_file_of_a_folder_ends_no_audit(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.json").symlink_to("/proc/self/mem")
    (tmp_path / "folder" / "b.json").write_bytes(SAMPLE)
    problems = [problem for _, problem in seen(runs([tmp_path / "folder"]))]
    assert problems == ["Input/output error", None]


def test_recording_beside_a_missing_log_is_found(tmp_path: Path) -> None:
    """A store removes its log when it is closed, perhaps between the listing of a folder and the look at the log."""
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(SAMPLE)
    (tmp_path / "a.json-wal").symlink_to(tmp_path.parent / "nothing")
    assert names(runs([tmp_path]), tmp_path) == ["a.json", "b.json"]


def test_device_is_refused_without_reading() -> None:
    assert seen(runs(["/dev/zero"])) == [("/dev/zero", "it is a device or a socket, and not a file")]


@pytest.mark.parametrize("pack", [packed_zip, packed_tar], ids=["zip", "tar"])
def test_archive_members_are_read_without_extraction(pack: Callable[[dict[str, bytes]], bytes], tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    (folder / "runs.pack").write_bytes(pack(MEMBERS))
    read_runs = runs([folder / "runs.pack"])
    assert names(read_runs, folder) == ["runs.pack:b/one.json", "runs.pack:../../two.json"]
    assert read_runs.skipped == 2
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [folder / "runs.pack"]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress], ids=["gz", "bz2", "xz"])
def test_compressed_files_and_compressed_tars_are_read(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    (tmp_path / "1.tar.gz").write_bytes(compress(packed_tar(MEMBERS)))
    (tmp_path / "2.json.gz").write_bytes(compress(SAMPLE))
    (tmp_path / "3.zip").write_bytes(packed_zip({"in.json.gz": compress(SAMPLE)}))
    assert names(runs([tmp_path]), tmp_path) == [
        "1.tar.gz:b/one.json",
        "1.tar.gz:../../two.json",
        "2.json.gz",
        "3.zip:in.json.gz",
    ]


def of_zstandard(data: bytes) -> bytes:
    """A frame of Zstandard with one block that is not compressed."""
    return b"\x28\xb5\x2f\xfd\xa0" + len(data).to_bytes(4, "little") + (len(data) << 3 | 1).to_bytes(3, "little") + data


def zip_of_zstandard(name: bytes, data: bytes) -> bytes:
    packed = of_zstandard(data)
    about = struct.pack("<HHHHHIIIHH", 63, 0, 93, 0, 33, zlib.crc32(data), len(packed), len(data), len(name), 0)
    begin = b"PK\x03\x04" + about + name + packed
    entry = b"PK\x01\x02" + struct.pack("<H", 63) + about + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    return begin + entry + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(begin), 0)


def test_zstandard_is_unpacked_if_a_module_exists_else_reported(tmp_path: Path) -> None:
    (tmp_path / "1.eval").write_bytes(zip_of_zstandard(b"in.json", SAMPLE))
    (tmp_path / "2.json.zst").write_bytes(of_zstandard(SAMPLE))
    can = sys.version_info >= (3, 14)
    with suppress(ModuleNotFoundError):
        can = can or importlib.util.find_spec("backports.zstd") is not None
    words = "it is packed with Zstandard: use Python 3.14 or newer, or `pip install backports.zstd`"
    expected = [("1.eval:in.json", None), ("2.json.zst", None)] if can else [("1.eval", words), ("2.json.zst", words)]
    assert [(Path(file).name, problem) for file, problem in seen(runs([tmp_path]))] == expected


def test_standard_input_is_a_recording_or_an_archive() -> None:
    assert seen(runs(["-"], stdin=io.BytesIO(SAMPLE))) == [("-", None)]
    assert seen(runs(["-"], stdin=io.BytesIO(packed_zip({"a.json": SAMPLE})))) == [("-:a.json", None)]
    assert seen(runs(["-"], stdin=io.BytesIO(b""))) == [("-", "it is empty")]


def test_large_member_is_read_from_a_deleted_temporary_file(tmp_path: Path) -> None:
    data = packed_tar({"a.json": SAMPLE + b" " * 2000})
    read_runs = list(runs(["-"], stdin=io.BytesIO(data), bounds=Bounds(memory=1000, folder=tmp_path)))
    assert [run.file for run in read_runs] == ["-:a.json"]
    assert isinstance(read_runs[0].found, Trajectory)
    assert list(tmp_path.iterdir()) == []


def test_archive_with_excessive_unpacked_size_is_refused(tmp_path: Path) -> None:
    small = Bounds(base=10_000, ratio=10)
    for data in (packed_zip({"a.json": b"[" * 10**6}), gzip.compress(b"[" * 10**6)):
        (tmp_path / "bomb").write_bytes(data)
        problems = [problem for _, problem in seen(runs([tmp_path / "bomb"], bounds=small)) if problem]
        assert any("archive bomb" in problem for problem in problems)


def test_folder_with_damaged_archives_is_read_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(packed_tar(MEMBERS))[:-40])
    (tmp_path / "b.zip").write_bytes(packed_zip(MEMBERS)[:100])
    (tmp_path / "c.json").write_bytes(SAMPLE)
    rows = seen(runs([tmp_path]))
    assert (str(tmp_path / "c.json"), None) in rows
    assert len([problem for _, problem in rows if problem]) == 2


def test_member_without_a_name_is_a_problem() -> None:
    damaged = bytearray(packed_zip({"a": SAMPLE}))
    name = damaged.index(b"PK\x01\x02") + 28
    damaged[name] = 0
    [run] = runs(["-"], stdin=io.BytesIO(damaged))
    assert isinstance(run.found, Problem)


@pytest.mark.slow
@pytest.mark.parametrize("more", [5, 64 * 1024**2])
def test_overlong_line_yields_only_the_beginning(more: int) -> None:
    recording = Recording.of(b"[" * (64 * 1024**2 + more) + b"\n1\n" + b"[" * (64 * 1024**2 + more))
    line_ends = [(len(line), line[-1:]) for line in recording.raw_lines()]
    assert line_ends == [(64 * 1024**2 + 1, b"\n"), (2, b"\n"), (64 * 1024**2, b"[")]


@pytest.mark.slow
def test_parser_gets_a_long_text_in_few_pieces() -> None:
    pieces: list[int] = []

    class Stream(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            pieces.append(len(data))
            return data

    text = "a" * 40_000_000
    assert partial_documents(Stream(b'["b", "' + text.encode() + b'"]')) == ([["b", text]], False)
    assert sum(piece > 0 for piece in pieces) == 3


@pytest.mark.slow
def test_named_pipe_without_a_writer_is_a_problem(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert seen(runs([tmp_path / "pipe.jsonl"])) == [(str(tmp_path / "pipe.jsonl"), "no program writes to this pipe")]


def test_pipe_is_read_to_the_end_even_with_a_late_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(SAMPLE))
    writer.start()
    assert seen(runs([pipe])) == [(str(pipe), None)]
    writer.join()
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as stream:
            stream.write(SAMPLE)

    late = threading.Thread(target=write)
    read_runs = iter(runs([f"/dev/fd/{reading}"]))
    late.start()
    assert isinstance(next(read_runs).found, Trajectory)
    late.join()
    os.close(reading)


def test_utf_16_file_is_reported_as_utf_16(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(SAMPLE.decode().encode("utf-16"))
    [(_, problem)] = seen(runs([tmp_path / "a.json"]))
    assert problem == "it is UTF-16: convert it to UTF-8"


def test_cut_compressed_file_keeps_the_readable_part(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(SAMPLE)[:-30])
    [run, problem] = runs([tmp_path])
    assert isinstance(run.found, Trajectory)
    assert run.found.run_notes.cut
    assert isinstance(problem.found, Problem)


def test_named_format_skips_recognition(tmp_path: Path) -> None:
    (tmp_path / "plain.json").write_bytes(SAMPLE.replace(b"ATIF-v1.8", b"1"))
    assert names(runs([tmp_path]), tmp_path) == []
    assert names(runs([tmp_path], format_named("atif")), tmp_path) == ["plain.json"]


@given(data=st.binary(max_size=200), magic=st.sampled_from(MAGIC))
def test_arbitrary_bytes_raise_no_error(data: bytes, magic: bytes) -> None:
    for run in runs(["-"], stdin=io.BytesIO(magic + data)):
        assert run.file.startswith("-")
