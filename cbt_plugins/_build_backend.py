"""The build backend: setuptools', and each wheel gets the two files that start the import hook."""

# setuptools has no public way to put a file beside the packages, and none at all for an editable install. A
# wheel is a zip file with a list of its files, so both kinds get theirs after setuptools is done; pip's
# uninstall knows them.

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import zipfile
from typing import Any, Dict, Optional

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the hooks that stay as they are)

_FILES: Dict[str, str] = {
    # Every interpreter of the environment executes this line. An installation that is half gone stays silent.
    "cbt_plugins.pth": (
        "import sys; exec('try:\\n from cbt_plugins.autoload import start\\n start()"
        "\\nexcept ImportError: pass')\n"
    ),
    # PEP 829: from Python 3.15 on in place of the line above, which 3.18 ignores.
    "cbt_plugins.start": "cbt_plugins.autoload:start\n",
}


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None
) -> str:
    # setuptools packs whatever an earlier build has left here, also modules that are gone since.
    shutil.rmtree(os.path.join("build", "lib"), ignore_errors=True)
    name = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return _with_hook(wheel_directory, name)


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None
) -> str:
    name = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    return _with_hook(wheel_directory, name)


def _with_hook(directory: str, name: str) -> str:
    path = os.path.join(directory, name)
    with zipfile.ZipFile(path) as wheel:
        members = [(member, wheel.read(member)) for member in wheel.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file, text in _FILES.items():
            wheel.writestr(file, text)
        for member, content in members:
            if member.filename.endswith(".dist-info/RECORD"):
                content += "".join(_record(file, text) for file, text in _FILES.items()).encode()
            wheel.writestr(member, content)
    return name


def _record(file: str, text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{file},sha256={digest},{len(text.encode())}\n"
