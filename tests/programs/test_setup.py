"""`./run setup`, with stand-ins of the programs that it calls, as root of namespaces of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Tuple

import pytest
from waiting import wait_for

PROJECT = Path(__file__).resolve().parents[2]

#: /usr/sbin and /run are folders of the test; what is on PATH before them stays
_INSIDE = 'mount --bind "$1/sbin" /usr/sbin && mount --bind "$1/run-state" /run && cd "$1" && shift && exec "$@"'
#: the first install lasts until a file `end` exists; what it asked the policy meanwhile is in the log
_APT = """#!/bin/sh
case "$*" in
  *install*)
    /usr/sbin/policy-rc.d ssh start; echo "asked: $?" >>"$LOG"
    until [ -e "$LOG.end" ]; do sleep 0.05; done ;;
esac
"""
_LOGGED = '#!/bin/sh\necho "$(basename "$0") $*" >>"$LOG"\n'
_GIT = """#!/bin/sh
echo "git $*" >>"$LOG"
case "$*" in *clone*) for folder; do :; done; mkdir -p "$folder" && touch "$folder/cbt.py" ;; esac
"""


@dataclass
class Machine:
    """A checkout with stand-ins for Python, apt and git."""

    folder: Path
    environment: Dict[str, str]

    def stand_in(self, **programs: str) -> None:
        for name, text in programs.items():
            path = self.folder / ".venv" / "bin" / name.replace("_", "-")
            path.write_text(text)
            path.chmod(0o755)

    def inside(self, *command: str) -> List[str]:
        space = ["unshare", "--mount", "--propagation", "private", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        return [*space, "sh", "-c", _INSIDE, "sh", str(self.folder), *command]

    def setup(self, *verb: str) -> Tuple[int, str]:
        words = self.inside("./run", *(verb or ("setup",)))
        done = subprocess.run(words, env=self.environment, stderr=subprocess.PIPE, text=True, timeout=300)
        return done.returncode, done.stderr

    def log(self) -> List[str]:
        return (self.folder / "log").read_text().splitlines()

    @property
    def policy(self) -> Path:
        return self.folder / "sbin" / "policy-rc.d"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for name in (".venv/bin", ".ci", "sbin", "run-state"):
        (tmp_path / name).mkdir(parents=True)
    if subprocess.run(Machine(tmp_path, {}).inside("true"), stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs root, or user namespaces")
    for name in ("run", "setup.cfg", "pyproject.toml", ".ci/requirements.txt"):
        shutil.copy(PROJECT / name, tmp_path / name)
    (tmp_path / "log").touch()
    own = {"LOG": tmp_path / "log", "XDG_CACHE_HOME": tmp_path / "cache", "CBT_HOME": ""}
    made = Machine(tmp_path, {**os.environ, **{name: str(value) for name, value in own.items()}})
    made.stand_in(python=_LOGGED, git=_GIT, apt_get=_APT, dpkg=_LOGGED, systemctl=_LOGGED)
    made.stand_in(**{"update-rc.d": _LOGGED}, dpkg_query="#!/bin/sh\necho installed\n")
    return made


@pytest.mark.parametrize("kept", [False, True])
def test_a_setup_that_is_killed_in_apt_leaves_no_policy(machine: Machine, kept: bool) -> None:
    """The policy ends with apt by itself, and the next set-up removes it, and what it was to undo."""
    own = "#!/bin/sh\nexit 104\n"
    if kept:
        machine.policy.write_text(own)
        machine.policy.chmod(0o755)
    machine.stand_in(dpkg_query="#!/bin/sh\n")  # nothing is installed
    words = machine.inside("./run", "setup")
    broken = subprocess.Popen(words, env=machine.environment, stderr=subprocess.DEVNULL, start_new_session=True)
    wait_for(lambda: "asked: 101" in machine.log(), "apt, and its question to the policy")
    os.killpg(broken.pid, signal.SIGKILL)
    broken.wait()
    assert "cbt-plugins" in machine.policy.read_text()
    question = machine.inside("/usr/sbin/policy-rc.d", "ssh", "start")
    # the last process of the group may end behind its leader
    wait_for(
        lambda: subprocess.run(question, env=machine.environment).returncode == (104 if kept else 0),
        "the end of the policy",
    )
    machine.stand_in(dpkg_query="#!/bin/sh\necho installed\n")
    assert machine.setup()[0] == 0
    left = {path.name: path.read_text() for path in (machine.folder / "sbin").iterdir()}
    assert left == ({"policy-rc.d": own} if kept else {})
    assert "systemctl disable collectl" in machine.log()


def test_what_is_installed_has_hashes_and_cbt_its_commit(machine: Machine) -> None:
    status, said = machine.setup()
    assert status == 0, said
    pip = [line for line in machine.log() if "-m pip install" in line]
    assert ["--require-hashes --only-binary :all: -r .ci/requirements.txt" in line for line in pip] == [True, False]
    assert "--no-index --no-deps --no-build-isolation -e ." in pip[1]
    assert any(re.search(r"^git .* checkout .*--detach [0-9a-f]{40}$", line) for line in machine.log())
    assert (machine.folder / "cache" / "cbt-plugins" / "cbt" / "cbt.py").exists()


def test_a_clone_without_the_commit_is_no_checkout(machine: Machine) -> None:
    machine.stand_in(git=_GIT + 'case "$*" in *checkout*) exit 1 ;; esac\n')
    status, said = machine.setup()
    assert status == 0 and "no CBT checkout" in said
    assert not list((machine.folder / "cache" / "cbt-plugins").iterdir())


def test_a_python_that_the_lock_does_not_know_is_said(machine: Machine) -> None:
    refusing = 'case "$*" in *"sys.exit(not"*) exit 1 ;; *python_version*) echo "Python 3.99 on m68k" ;; esac\n'
    machine.stand_in(python=_LOGGED + refusing)
    status, said = machine.setup()
    assert status == 0, said
    assert "WARNING" in said and "this is Python 3.99 on m68k: installing the newest versions" in said
    assert not any("--require-hashes" in line for line in machine.log())


def test_cbt_is_cloned_by_a_later_setup_and_no_other_verb_waits_for_it(machine: Machine) -> None:
    """As when the first set-up had no network."""
    checkout = machine.folder / "cache" / "cbt-plugins" / "cbt"
    machine.stand_in(git='#!/bin/sh\necho "git $*" >>"$LOG"; exit 128\n')
    assert machine.setup()[0] == 0 and not checkout.exists()
    before = machine.log()
    assert machine.setup("bench", "none")[0] == 0
    assert not [line for line in machine.log()[len(before) :] if line.startswith("git")]
    machine.stand_in(git=_GIT)
    assert machine.setup()[0] == 0 and (checkout / "cbt.py").exists()
    assert not [line for line in machine.log()[len(before) :] if "pip install" in line]


def test_a_folder_in_the_place_of_the_clone_stays_as_it_is(machine: Machine) -> None:
    checkout = machine.folder / "cache" / "cbt-plugins" / "cbt"
    checkout.mkdir(parents=True)
    (checkout / "mine").touch()
    status, said = machine.setup()
    assert status == 0 and "cbt has no cbt.py, and is not empty: remove it" in said
    assert [path.name for path in checkout.iterdir()] == ["mine"]
    assert [path.name for path in checkout.parent.iterdir()] == ["cbt"]


def test_apt_is_never_without_its_lock(machine: Machine) -> None:
    (machine.folder / "log.end").touch()
    machine.stand_in(dpkg_query="#!/bin/sh\n", flock='#!/bin/sh\n[ "$1" != -w ]\n')
    status, said = machine.setup()
    assert status == 1 and "another set-up has held /run/cbt-plugins-apt.lock for 15 minutes" in said
    assert machine.log() == [] and not machine.policy.exists()
