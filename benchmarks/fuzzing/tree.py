"""An input of the fuzzer: a small folder held in memory."""

from __future__ import annotations

import io
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tree:
    """Files by their path in the folder; `pure` while libraries wrote them whole and no bytes were changed."""

    files: dict[str, bytes]
    pure: bool = True

    def replace(self, name: str, content: bytes, pure: bool = False) -> Tree:
        """Return the tree with another content of one file."""
        return Tree({**self.files, name: content}, self.pure and pure)

    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.files.values()))

    def unpacked(self) -> int:
        """Bytes of all files, those in archives as the archives say."""
        return sum(max(len(content), _inside(content)) for content in self.files.values())

    def write(self, folder: Path, there: Tree | None = None) -> None:
        """Write the files into `folder`, which is emptied first, or holds the tree `there` with the same names."""
        if there is None or there.files.keys() != self.files.keys():
            there = None
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        for name, content in self.files.items():
            if there is not None and there.files[name] == content:
                continue
            path = folder / name
            if there is None:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _inside(content: bytes) -> int:
    if content[:2] == b"\x1f\x8b":
        return int.from_bytes(content[-4:], "little")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return sum(info.file_size for info in archive.infolist())
    except Exception:  # not an archive, or a damaged one, which is not unpacked
        return 0


def read_tree(folder: Path) -> Tree:
    """Return what `Tree.write` wrote; `pure` is not known any more, so it is False."""
    return Tree(
        {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()},
        pure=False,
    )
