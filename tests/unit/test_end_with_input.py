"""Work of root that ends with its input, where /proc hides the processes of others."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cbt_plugins.cluster.ceph import END_WITH_INPUT
from cbt_plugins.cluster.shell_programs import script_command

#: of root in namespaces of its own, where no process has the number of a signal, which `kill` would take it for
HIDDEN = """\
echo 1000 > /proc/sys/kernel/ns_last_pid
mount -t proc -o hidepid={hidepid} proc /proc && mount --bind {folder}/sudoers /etc/sudoers || exit 77
until grep -qx tail /proc/[0-9]*/comm; do sleep 0.1; done |
  setpriv --reuid=65534 --regid=65534 --clear-groups sh -c {line}
! grep -x tail /proc/[0-9]*/comm
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("sudo"), reason="becomes another user that has sudo")
@pytest.mark.parametrize("hidepid", [1, 2])
def test_work_of_root_ends_where_processes_of_others_are_hidden(tmp_path: Path, hidepid: int) -> None:
    (tmp_path / "sudoers").write_text("#65534 ALL=(ALL) NOPASSWD: ALL\n")
    (tmp_path / "sudoers").chmod(0o440)
    line = shlex.quote(script_command(END_WITH_INPUT, "sudo", "-n", "tail", "-f", "/dev/null"))
    space = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c"]
    text = HIDDEN.format(hidepid=hidepid, folder=tmp_path, line=line)
    done = subprocess.run([*space, text], check=False, cwd="/", timeout=60)
    if done.returncode == 77:
        pytest.skip("needs mounts")
    assert done.returncode == 0
