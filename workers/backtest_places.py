"""Whether what a backtest is to write can be written: found out before the work, which may take hours, and without
writing anything."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from stream_calib.errors import BacktestError


class Place(NamedTuple):
    """A file or a folder that is to be written; folders that it lies in are made then."""

    option: str
    path: Path
    is_folder: bool = False
    is_replaced: bool = False
    """A file that is written beside its place and put there when it is whole."""

    @property
    def real(self) -> Path:
        """Where it comes to lie, by way of links."""
        return Path(os.path.realpath(self.path))

    def __str__(self) -> str:
        return f"{self.option} {self.path}"


def check_places(places: Sequence[Place], inputs: Sequence[Path] = ()) -> None:
    """Raises BacktestError where two are the same, one is a file that another one has to lie in, something else is
    there, or it cannot be written to. `inputs`: files that are read, which none may be."""
    read = {os.path.realpath(path) for path in inputs}
    for place in places:
        if str(place.real) in read:
            raise BacktestError(f"{place}: is read, and would be overwritten; give it another name")
    for place in places:
        try:
            _check(place)
        except OSError as error:
            raise BacktestError(f"{place}: cannot be written: {error.strerror}; name another place") from error
    for one, other in combinations(places, 2):
        _check_apart(one, other)
        _check_apart(other, one)


def files_named(names: Iterable[str]) -> list[Path]:
    """The files of these names, and those that match where a name has wildcards; some may not be there."""
    return [Path(file) for name in names for file in (name, *glob.glob(name, recursive=True))]


def make_folder(folder: Path) -> None:
    """With those that it lies in, also where a link says so. Raises BacktestError where it cannot be made."""
    try:
        os.makedirs(os.path.realpath(folder), exist_ok=True)
    except OSError as error:
        raise BacktestError(f"{folder}: the folder cannot be made: {error.strerror}; name another one") from error


def _check_apart(one: Place, other: Place) -> None:
    path, another = one.real, other.real
    if path == another:
        raise BacktestError(f"{one} and {other} are the same; give each a name of its own")
    if not one.is_folder and path in another.parents:
        raise BacktestError(f"{other} is to lie in {one}, which is to be a file; give it another name")


def _check(place: Place) -> None:
    """Raises OSError too."""
    path = folder = place.real
    if any(each.is_symlink() for each in (path, *path.parents)):  # what is left of a circle of links
        raise BacktestError(f"{place}: is a link to itself; name another place")
    if not place.is_folder:
        folder = path.parent
        if path.is_dir():
            raise BacktestError(f"{place}: is a folder; name a file")
        if place.is_replaced:
            if path.exists() and not path.is_file():
                raise BacktestError(f"{place}: is a device or a pipe, in whose place no file is put; name a file")
        elif path.exists():
            if path.is_file():  # a device, or a pipe, is opened once only
                path.open("ab").close()
            return
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise BacktestError(f"{place}: {there} is a file; name a folder, which is made where it is not there")
    tempfile.TemporaryFile(dir=there).close()
