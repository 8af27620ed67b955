"""Where samplers ask for the state of the cluster: what they outlive."""

from __future__ import annotations

import subprocess
import sys


def test_a_ceph_command_that_has_ended_does_not_end_the_agent() -> None:
    """Neither the question nor what is left of it in a buffer, although the agent dies of SIGPIPE elsewhere."""
    text = """if True:
        import signal
        from cbt_plugins.cluster.state_sampler_sources import CephCommand, NoReply
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        source = CephCommand("true", 1)
        source._open()
        source._process.wait()
        try:
            source.mon({"prefix": "status"})
        except NoReply as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("ceph has ended")
