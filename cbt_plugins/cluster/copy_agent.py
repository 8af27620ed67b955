"""Pack the current folder, or unpack files: what a node without tar runs. Standard library only, Python 3.6.

"pack" and "nothing" (an empty archive) write to standard output, "unpack" reads files with absolute paths.
"""

# mypy: disallow-untyped-defs=False

import io
import os
import shutil
import sys
import tarfile


def pack(archive):
    """Add what is in the current folder; what disappears meanwhile is left out."""
    for top, _, names in os.walk("."):
        for path in [top] + [os.path.join(top, name) for name in names]:
            try:
                entry = archive.gettarinfo(path)
                if entry is None:  # a socket
                    continue
                if not entry.isreg():
                    archive.addfile(entry)
                    continue
                content = io.FileIO(path)
            except OSError:
                continue
            with content:
                archive.addfile(entry, content)


def unpack(archive):
    """Make each file anew; its folder is there."""
    for entry in archive:
        path = os.path.join("/", entry.name)
        if os.path.lexists(path):
            os.unlink(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, entry.mode)
        with os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(archive.extractfile(entry), file)


if sys.argv[1] == "unpack":
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as source:
        unpack(source)
else:
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as target:
        if sys.argv[1] == "pack":
            pack(target)
