"""What goes wrong in the lab, in one line for the person at the terminal."""

from __future__ import annotations


class LabError(Exception):
    """The lab cannot do it; str() is what to print. `status` is the exit status of the command."""

    status = 1


class LabUsage(LabError):
    """The question itself is wrong: an option, a node's name, a folder that is not a lab."""

    status = 2
