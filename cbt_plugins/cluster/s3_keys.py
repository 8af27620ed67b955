"""A pair of S3 keys as a value, and the only way in which a load program gets them: its environment."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Dict, Optional, Sequence, Tuple


@dataclass(frozen=True)
class S3Keys:
    """S3 keys; never printed."""

    access: str
    secret: str
    token: str = ""  # of a session

    @property
    def all(self) -> Tuple[str, str, str]:
        """Access key, secret key, and the token or ""."""
        return self.access, self.secret, self.token

    def environment(
        self, authority: Optional[str] = None, sse: str = "", others: Sequence[S3Keys] = ()
    ) -> Dict[str, str]:
        """Return the variables from which the generators read these keys, which are nowhere else.

        `authority` is the path on the client of a PEM file, which Go's programs take instead of the system's. `sse` is
        that of the plan. `others` are the keys of its `users`, which only cbt-load reads.
        """
        # a run that is resumed has the same again, and it is written nowhere
        customer = base64.b64encode(hashlib.sha256(f"cbt-load SSE-C {self.secret}".encode()).digest()).decode()
        numbered = {
            f"{name}_{number}": value
            for number, keys in enumerate(others, 2)
            for name, value in (("AWS_ACCESS_KEY_ID", keys.access), ("AWS_SECRET_ACCESS_KEY", keys.secret))
        }
        return {
            **numbered,
            **({"CBT_LOAD_SSE_KEY": customer} if sse == "c" else {}),
            **({"SSL_CERT_FILE": authority} if authority else {}),
            **({"WARP_SESSION_TOKEN": self.token} if self.token else {}),
            # also without a token: the environment of whoever leads the run may have one, and by an older name
            "AWS_SESSION_TOKEN": self.token,
            "AWS_SECURITY_TOKEN": self.token,
            "WARP_ACCESS_KEY": self.access,
            "WARP_SECRET_KEY": self.secret,
            "AWS_ACCESS_KEY_ID": self.access,
            "AWS_SECRET_ACCESS_KEY": self.secret,
        }

    def __repr__(self) -> str:
        return "S3Keys(...)"
