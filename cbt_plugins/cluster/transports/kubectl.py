"""Nodes that are pods, through `kubectl exec`."""

from __future__ import annotations

import re
from typing import Any, ClassVar, List, Mapping, Optional, Tuple

from cbt_plugins.cluster.kubernetes import Kubernetes, KubernetesError
from cbt_plugins.cluster.transports.container import ExecTransport

#: what kubectl says of a command that failed, and of one that was killed: the pod may be gone
_ENDED, _KILLED = re.compile(r"command terminated with exit code \d+"), "command terminated with exit code 137"
#: messages after which the state of the pod explains nothing: its command ran, or the API server does not answer
_OTHER_REASONS = re.compile(f"{_KILLED}|no reply in time|connect(ion)? to the server|[Ff]orbidden")


class Kubectl(ExecTransport):
    """The pods of `cluster: kubernetes:`; the user of a node is that of its container.

    kubectl ends with the status of the command, or with 1 for errors of its own. Where the connection is lost it may
    end with 0: the node's own word counts.
    """

    needs: ClassVar[Tuple[str, ...]] = ("kubernetes",)
    connect_limit = 60.0
    own_statuses: ClassVar[Tuple[int, ...]] = (1, 137)

    def __init__(self, cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        super().__init__(cluster, common)
        self._kubernetes = Kubernetes.of(cluster)

    def words(self, node: str) -> List[str]:
        if self._kubernetes is None:
            text = "transport kubectl needs cluster: kubernetes: {context: NAME}"
            return ["sh", "-c", 'echo "$0" >&2; exit 1', text]
        return self._kubernetes.exec_words(node)

    def login(self, node: str) -> str:
        if self._kubernetes is None or self._kubernetes.pod(node).is_label:
            return ""  # the errors say what was looked for
        return super().login(node)

    def reason(self, node: str, messages: str) -> str:
        """Return the reason why the pod of a node does not run: its image, its configuration, or the scheduler."""
        if self._kubernetes is None or _OTHER_REASONS.search(messages):
            return ""
        try:
            return "; ".join(self._kubernetes.waits_of(node))
        except KubernetesError:  # the messages say enough
            return ""

    def message_of(self, line: str) -> Optional[str]:
        if _ENDED.fullmatch(line) and line != _KILLED:
            return None
        return super().message_of(line)

    def port(self, node: str) -> int:
        return 10250  # of the kubelet
