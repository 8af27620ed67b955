"""Builders of root folders: from the machine's package mirror, a container image, or a Ceph build tree."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from .installed_releases import output_in_root, release_of, roots, roots_folder
from .pid1 import OWN
from .requirements import HOST, NODES, LabError, LabUsage, missing

#: release of Ceph -> the Debian that has it
DEBIAN_OF_RELEASE = {"pacific": "bookworm", "reef": "trixie", "tentacle": "sid"}
#: what debootstrap installs, and then apt-get, which needs /proc and may start no daemon
_FIRST = ("ca-certificates", "iproute2", "procps", "hostname", "python3")
_FURTHER_PACKAGES = ("ceph-mds", "ceph-mgr-modules-core", "collectl", "curl", "haproxy", "nftables")
_MOUNTED = """\
set -e; for d in proc sys dev; do mount --rbind /$d "$0/$d"; done
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 TMPDIR=/tmp; exec chroot "$0" "$@"
"""
Say = Callable[[str], None]


class RootBuilder:
    """Makes root folders in `folder`: one under work is .NAME.partial. `say` gets a line for each step."""

    def __init__(self, say: Say, folder: Optional[Path] = None) -> None:
        self._say, self._folder = say, folder or roots_folder()

    def make(self, name: str, image: str = "", tree: Optional[Path] = None) -> Path:
        """Return the root folder of that name; what is there already is kept."""
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
            raise LabUsage(f"{name}: the name of a root folder may have only letters, digits, _, - and .")
        target, partial = self._folder / name, self._folder / f".{name}.partial"
        if os.geteuid():
            raise LabError("run this command as root: debootstrap, tar and chroot need root")
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._folder / f".{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                if image:
                    self._export(image, partial)
                elif tree:
                    self._lay(tree, partial)
                else:
                    self._bootstrap(name, partial)
                self._finish(partial, target)
                os.rename(partial, target)
        self._say(f"{target}: Ceph {release_of(str(target))}")
        return target

    def _finish(self, root: Path, target: Path) -> None:
        """Check a root folder, and install what cycles in its nodes need."""
        release_of(str(root))
        errors, warnings = missing(str(root))
        for line in [*errors, *warnings]:
            self._say(line.replace(str(root), str(target)))
        version, _, folder = output_in_root(str(root), "python3", "-c", _PYTHON).partition(" ")
        if not folder:
            self._say("the root folder has no python3: cycles cannot run in its nodes")
            return
        site = Path(f"{root}{folder}")
        own = site / "cbt-plugins-of-the-lab.pth"
        if own.exists():  # it came with the root below a build tree
            return
        pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--root-user-action=ignore"]
        which = ["--target", str(site), "--python-version", version, "--only-binary=:all:"]
        self._say(f"packages for Python {version} of the root folder")
        _run([*pip, *which, *requirements()])
        own.write_text(f"{OWN}\n")

    def _bootstrap(self, name: str, root: Path) -> None:
        if name not in DEBIAN_OF_RELEASE:
            raise LabUsage(f"{name}: Debian's mirror has only {', '.join(DEBIAN_OF_RELEASE)}: give --image or --tree")
        suite, mirror, proxy = DEBIAN_OF_RELEASE[name], debian_mirror(), _apt_proxy()
        if shutil.which("debootstrap") is None:
            raise LabError("missing: debootstrap (package debootstrap): apt-get install debootstrap")
        self._say(f"debootstrap {suite} from {mirror} (minutes)")
        _run(["debootstrap", "--variant=minbase", f"--include={','.join(_FIRST)}", suite, str(root), mirror], proxy)
        (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
        (root / "usr/sbin/policy-rc.d").chmod(0o755)
        for own in Path("/usr/local/share/ca-certificates").glob("*.crt"):
            shutil.copy(own, root / "usr/local/share/ca-certificates")
        packages = sorted({need.deb for need in (*HOST, *NODES)} | set(_FURTHER_PACKAGES))
        self._say(f"packages of Ceph {name}")
        _in_root(root, ["update-ca-certificates"])
        _in_root(root, ["apt-get", "-q", "install", "-y", "--no-install-recommends", *packages], proxy)
        _in_root(root, ["apt-get", "clean"])

    def _export(self, image: str, root: Path) -> None:
        runtime = next(filter(None, map(shutil.which, ("podman", "docker"))), None)
        if not runtime:
            raise LabError("--image: neither podman nor docker is installed")
        self._say(f"{Path(runtime).name} export {image}")
        box = _run([runtime, "create", "--pull=never", image, "true"]).strip()
        try:
            script = 'set -o pipefail; "$0" export "$1" | tar -x -p -C "$2"'
            _run(["bash", "-c", script, runtime, box, str(root)])
        finally:
            _run([runtime, "rm", box])

    def _lay(self, tree: Path, root: Path) -> None:
        """Copy the root folder of the same distribution, and replace its programs and libraries by the tree's."""
        if not (tree / "bin/ceph-mon").exists() or not (tree / "lib").is_dir():
            raise LabUsage(f"--tree {tree}: not a build tree of Ceph: bin/ceph-mon or lib/ is missing")
        base = _base_of(tree)
        self._say(f"copying {base}")
        _run(["cp", "-a", "--reflink=auto", f"{base}/.", str(root)])
        self._say(f"{lay(tree, root)} files of {tree} replace files of {base}")
        _in_root(root, ["ldconfig"])


_PYTHON = "import site, sys; print('%d.%d' % sys.version_info[:2], site.getsitepackages()[0])"


def requirements() -> List[str]:
    """Return the requirements of this project to run cycles and to report them, as pip takes them."""
    lines = metadata.distribution("cbt-plugins").requires or []
    wanted = [line for line in lines if "extra ==" not in line or re.search(r"extra == .report.", line)]
    return [re.sub(r"\s*(and|;)\s*extra == .report.", "", line) for line in wanted]


def debian_mirror() -> str:
    """Return the mirror of Debian in the machine's own apt sources."""
    form = "$(ORIGIN) $(CODENAME) $(REPO_URI)"
    for line in _run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"]).splitlines():
        origin, suite, mirror = line.split(" ", 2)
        if origin == "Debian" and "-" not in suite:
            return mirror
    raise LabError("no mirror of Debian in the sources of apt: run `apt-get update`, or use --image or --tree")


def _apt_proxy() -> Dict[str, str]:
    output = _run(["apt-config", "shell", "PROXY", "Acquire::http::Proxy"])
    proxy = re.search(r"PROXY='([^']+)'", output)
    return {"http_proxy": proxy[1]} if proxy and "http_proxy" not in os.environ else {}


def _base_of(tree: Path) -> str:
    """Return the root folder in which a build tree's programs find the libraries of their distribution."""
    for root in roots()[1:]:
        links = output_in_root(root, "sh", "-c", "ls /lib*/ld-linux* /lib*/*/libc.so.6 | head -1")
        if links and _runs_on(tree, root):
            return root
    text = "first make a root folder of the distribution on which the tree was built, such as `lab root pacific`"
    raise LabError(f"--tree {tree}: {text}")


def _runs_on(tree: Path, root: str) -> bool:
    """Return whether a root folder's C library has every version that the tree's monitor asks for."""
    wanted = _versions((tree / "bin/ceph-mon").read_bytes())
    libraries = [path for path in Path(root).glob("usr/lib*/**/libc.so.6") if path.is_file()]
    return any(wanted <= _versions(path.read_bytes()) for path in libraries)


def _versions(program: bytes) -> set[bytes]:
    return set(re.findall(rb"\0(GLIBC_2\.[\d.]+)(?=\0)", program))


def lay(tree: Path, root: Path) -> int:
    """Replace files of a root folder by those of the same name in a build tree; return how many."""
    root_files: Dict[str, List[Path]] = {}
    for part in ("bin", "sbin", "lib", "lib64", "share/ceph/mgr"):
        for path in (root / "usr" / part).rglob("*"):
            if path.is_file() and not path.is_symlink():
                root_files.setdefault(path.name, []).append(path)
    count = 0
    for source in [*(tree / "bin").iterdir(), *(tree / "lib").rglob("*")]:
        if not source.is_file() or not _is_program(source):
            continue
        targets = root_files.get(source.name, [])
        if not targets and source.name.startswith("lib") and ".so" in source.name:
            targets = [root / "usr/local/lib" / source.name]
        for target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copy(source, target)
            count += 1
    return count


def _is_program(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def _in_root(root: Path, argv: Sequence[str], extra: Mapping[str, str] = {}) -> None:
    """Run a program in a root folder with /proc, /sys and /dev, in a mount namespace that ends with it."""
    _run(["unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNTED, str(root), *argv], extra)


def _run(argv: Sequence[str], extra: Mapping[str, str] = {}) -> str:
    try:
        done = subprocess.run(
            argv, env={**os.environ, **extra}, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    except OSError as error:
        raise LabError(f"{argv[0]}: {error.strerror}") from None
    if done.returncode:
        tail = " | ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-4:])
        raise LabError(f"{' '.join(argv)[:120]}: exit status {done.returncode}: {tail}")
    return done.stdout
