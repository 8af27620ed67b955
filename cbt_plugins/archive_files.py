"""Files of archives, each opened once and judged by its descriptor: an archive may be damaged, or come from anybody."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, Mapping, Optional, Set, Tuple

#: modes of files that a run writes: nobody else may write one; journals that an undo obeys are nobody else's at all
SHARED, PRIVATE = 0o644, 0o600
#: mode of folders that are fetched
FOLDER = 0o755

_PATH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_LINK = "is a link or is reached through a link, whose target could be any file"
_OWN_FOLDER = ", or use another archive folder, where your files stay yours (not NFS with root_squash or all_squash)"
#: folders of archives, as the user has named them: no link is followed below
_confined: Set[str] = set()


def confine(folder: Path) -> None:
    """Follow no link below a folder from now on. The folder itself may be a link: the user has named it."""
    _confined.update((os.path.abspath(folder), os.path.realpath(folder)))


#: folders of runs, and in each the files that are not read: path in it -> why
_refused: Dict[str, Mapping[str, str]] = {}


def refuse(folder: Path, files: Mapping[str, str]) -> None:
    """Let `open_regular` refuse these files of a folder from now on, and no others: path in it -> why."""
    for name in (os.path.abspath(folder), os.path.realpath(folder)):
        _refused[name] = files


#: what `confine` and `refuse` have been told
Rules = Tuple[Set[str], Dict[str, Mapping[str, str]]]


def rules() -> Rules:
    """Return the confined folders and the refused files of this process, for `obey` in another one."""
    return set(_confined), dict(_refused)


def obey(others: Rules) -> None:
    """Open files as the process does that has these rules."""
    _confined.update(others[0])
    _refused.update(others[1])


def _refusal(path: Path) -> Optional[str]:
    full = os.path.abspath(path)
    for root, files in _refused.items():
        if files and full.startswith(f"{root}{os.sep}"):
            why = files.get(os.path.relpath(full, root))
            if why:
                return why
    return None


def keep_from_others(folder: Path) -> None:
    """Let nobody but this user and the group, as the umask says, write what this process makes, and a folder."""
    os.umask(os.umask(0o077) | stat.S_IWOTH)
    mode = folder.stat().st_mode if folder.is_dir() else 0
    if mode & stat.S_IWOTH and folder.stat().st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(mode) & ~stat.S_IWOTH)


@contextmanager
def folder_of(path: Path) -> Iterator[Tuple[Optional[int], str]]:
    """Give the folder of a file as a descriptor, and the name in it, so that no link below a confined folder counts.

    Where nothing is confined: None and the path itself. Raises OSError.
    """
    full = os.path.abspath(path)
    root = max((folder for folder in _confined if full.startswith(f"{folder}{os.sep}")), key=len, default=None)
    if root is None:
        yield None, os.fspath(path)
        return
    *folders, name = os.path.relpath(full, root).split(os.sep)
    handle = os.open(root, _PATH)
    try:
        for folder in folders:
            below = _open_folder(folder, handle, path)
            os.close(handle)
            handle = below
        yield handle, name
    finally:
        os.close(handle)


def _open_folder(name: str, parent: int, path: Path) -> int:
    try:
        return os.open(name, _PATH | os.O_NOFOLLOW, dir_fd=parent)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, _LINK, str(path)) from None
        raise


def open_regular(path: Path, most: Optional[int] = None, own: bool = False, judged: bool = True) -> BinaryIO:
    """Open a regular file of at most `most` bytes; with `own` one of this user's, with no other name.

    It never waits: a pipe or a device is an error, and so is a file that `refuse` names, unless it is to be `judged`
    only now. Raises OSError.
    """
    why = _refusal(path) if judged else None
    if why:
        raise FileNotFoundError(errno.ENOENT, why, str(path))  # it counts as one that is not there
    handle = _open(path, os.O_RDONLY, own)
    size = os.fstat(handle).st_size
    if most is not None and size > most:
        os.close(handle)
        raise OSError(errno.EFBIG, f"has more than {most} bytes", str(path))
    return open(handle, "rb")


def is_own(path: Path) -> bool:
    """Tell whether a file of an archive is a regular one, and in it: for programs that open it by its name."""
    try:
        open_regular(path).close()
    except OSError:
        return False
    return True


def open_to_append(path: Path, mode: int = SHARED, own: bool = True) -> BinaryIO:
    """Open a file for reading and appending, unbuffered, and make it if it is missing; judged as by `open_regular`.

    It has no other name, and without `own` may be of another user. Others than `mode` names have no access to it,
    whatever the umask. Raises OSError.
    """
    handle = _open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, own, mode)
    present = stat.S_IMODE(os.fstat(handle).st_mode)
    if present & ~mode and os.fstat(handle).st_uid == os.geteuid():
        os.fchmod(handle, present & mode)
    return open(handle, "r+b", buffering=0)


def _open(path: Path, flags: int, own: bool, mode: int = SHARED) -> int:
    only = own or bool(flags & os.O_CREAT)  # a file that is written is nothing else's
    with folder_of(path) as (folder, name):
        follow = os.O_NOFOLLOW if only or folder is not None else 0
        try:
            handle = os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | follow, mode, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, _LINK, str(path)) from None
            if error.errno == errno.ENXIO:
                raise OSError(errno.EINVAL, "is not a regular file", str(path)) from None
            raise OSError(error.errno, error.strerror, str(path)) from None
    facts, why = os.fstat(handle), ""
    if not stat.S_ISREG(facts.st_mode):
        why = "is not a regular file"
    elif only and facts.st_nlink != 1:
        why = f"has {facts.st_nlink} hard links: the owner of another link could change the file; copy it"
    elif own and facts.st_uid != os.geteuid():
        why = f"belongs to another user (uid {facts.st_uid}): run this as that user"
        why += _OWN_FOLDER if flags & os.O_CREAT else ""
    if why:
        os.close(handle)
        raise OSError(errno.EINVAL, why, str(path))
    return handle
