"""Values that reach a command line on a node, or of this machine: each key that holds one has a type from here.

None of them begins with a dash, so none is taken for an option, and none has a character that a shell obeys: CBT puts
several of them into commands unquoted. Nodes are checked by `inventory.check_node_name`.
"""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from cbt_plugins.inventory import LONGEST_USER

_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"


#: characters of a name, and of a path or a command (PATH_MAX of Linux)
_LONGEST_NAME, _LONGEST_PATH = LONGEST_USER, 4095


def _text(pattern: str, must: str, longest: int = _LONGEST_NAME) -> Any:
    """Return the type of a text that is all of this pattern; `must` ends the sentence "must be ..."."""
    regex = re.compile(pattern)

    def check(value: str) -> str:
        if not regex.fullmatch(value):
            raise ValueError(f"must be {must}")
        if len(value) > longest:
            raise ValueError(f"has {len(value)} characters, and {longest} are the limit")
        return value

    schema = {"type": "string", "pattern": f"^(?:{pattern})$", "maxLength": longest}
    return Annotated[str, AfterValidator(check), WithJsonSchema(schema)]


#: path on a node that is made there
AbsolutePath = _text(
    r"(?:/[A-Za-z0-9._+-]+)+",
    "an absolute path of letters, digits and . _ + - only, without / at its end",
    _LONGEST_PATH,
)
#: path of a file that is there
FilePath = _text(
    r"[A-Za-z0-9_./][A-Za-z0-9_./+:,@=-]*", "a path of letters, digits and / . _ + : , @ = - only", _LONGEST_PATH
)
#: program with its first arguments, as in `sudo ceph`
Program = _text(
    r"[A-Za-z0-9_./][A-Za-z0-9_./+-]*(?: [A-Za-z0-9_./+:,@=-]+)*",
    "a program and its arguments, of letters, digits and / . _ + : , @ = - only",
    _LONGEST_PATH,
)
#: who logs in on nodes
Login = _text(r"[A-Za-z_][A-Za-z0-9_.-]*\$?", "the name of a user: letters, digits and . _ - only, not - at first")
#: user of RGW, perhaps of a tenant
RgwUser = _text(
    r"[A-Za-z0-9_][A-Za-z0-9_.,@$:+=/-]*", "the name of a user: letters, digits and . _ , @ $ : + = / - only"
)
#: a section of the AWS credentials file
AwsProfile = _text(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*", "the name of a profile: letters, digits and . _ @ - only")
#: how RGW encrypts objects; the name of a key of KMS
Encryption = _text(r"c|s3|kms:[A-Za-z0-9_][A-Za-z0-9_.:/+=-]*", "c, s3, or kms: and the name of a key")
Region = _text(_WORD, "letters, digits and . _ + - only")
#: pool, CRUSH rule, bucket of the CRUSH tree, device class
CrushName = _text(r"[A-Za-z0-9_.][A-Za-z0-9_.+-]*", "a name of letters, digits and . _ + - only, not - at first")
#: network interface, as Linux allows them
Interface = _text(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,14}", "an interface: up to 15 letters, digits, . _ : @ -")
#: an entry of a kubeconfig, such as user@cluster or arn:aws:eks:us-east-1:1:cluster/a
KubernetesContext = _text(
    r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]*", "the name of a context: letters, digits and . _ : / @ + - only"
)
_OBJECT, _LABEL = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", r"[A-Za-z0-9][A-Za-z0-9_./-]*=[A-Za-z0-9][A-Za-z0-9_.-]*"
#: namespace, container or other object of Kubernetes
KubernetesName = _text(_OBJECT, "a name of Kubernetes: small letters, digits and . - only")
PodPattern = _text(rf"(?:[a-z]+/)?{_OBJECT}|{_LABEL}(?:,{_LABEL})*", "a pod, deploy/NAME, or LABEL=VALUE")
Daemon = _text(r"[a-z]+\.[A-Za-z0-9_][A-Za-z0-9._-]*", "a type and a name, as in osd.3 or rgw.a")

_OPTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_NUMBER = re.compile(r"-?[0-9.]+(?:[eE][+-]?[0-9]+)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_OPERATORS = ";|&<>()"
_LONGEST = 1000


def check_option_name(name: str) -> str:
    """Return the name of an option of a program, without dashes; raises ValueError."""
    if not _OPTION_NAME.fullmatch(name):
        raise ValueError(f"not the name of an option: {name!r}")
    return name


def check_option_value(value: str) -> str:
    """Return the value of an option, of Ceph or of a program; raises ValueError."""
    if _CONTROL.search(value) or len(value) > _LONGEST:
        raise ValueError(f"must be one line of at most {_LONGEST} characters, without control characters")
    if value.startswith("-") and not _NUMBER.fullmatch(value):
        raise ValueError("must not begin with -, unless it is a number: it would be taken for an option")
    return value


def check_arguments(text: str, folder: str) -> str:
    """Return the arguments of a program, as a shell reads them; raises ValueError for what is more than that.

    `folder` is the only name in braces that it may have, as in {collectl_dir}.
    """
    if _CONTROL.search(text.strip()) or "`" in text or "$(" in text:
        raise ValueError("must be arguments only, on one line: no ` and no $(")
    words = shlex.shlex(text.strip(), posix=False, punctuation_chars=_OPERATORS)
    words.whitespace_split, words.commenters = True, ""
    try:
        if any(word and set(word) <= set(_OPERATORS) for word in words):
            raise ValueError(f"must be arguments only: quote each of {' '.join(_OPERATORS)}")
    except ValueError as error:
        raise ValueError("a quote is not closed" if "quotation" in str(error) else str(error)) from None
    try:
        text.format(**{folder: "/x"})
    except (KeyError, IndexError, ValueError, AttributeError):
        raise ValueError(f"braces stand for {{{folder}}} only: write {{{{ and }}}} for braces") from None
    return text


#: a password in the commands of power controllers; the word behind it must come from the environment. -P is ipmitool's;
#: -p, with which others take a path or a port, is that of FreeIPMI, racadm and fence agents
_PASSWORD = re.compile(
    r"""(?:(?:^|\s)(?-i:-P)\s*|(?:ipmi(?!tool)|racadm|fence_)(?:[^;&|\n]|\\\n)*?\s(?-i:-p)\s*|sshpass\s+-p\s*
    |--?(?:password|passwd|secret|token)(?:\s+|=)|(?:password|passwd|secret|token)=
    |(?:^|\s)(?:-u|--user)\s+[^\s:]+:|://[^\s:/@]+:)["']?(?P<word>[^\s"']+)""",
    re.IGNORECASE | re.VERBOSE,
)


def check_no_password(text: str) -> str:
    """Return the text of a command; raises ValueError, which does not show it, for a password in it."""
    if any(not match["word"].startswith("$") for match in _PASSWORD.finditer(text)):
        raise ValueError("password in the text: take it from the environment: ${NAME}")
    return text


def _shell_command(text: str) -> str:
    if "\0" in text or not text.strip():
        raise ValueError("must be a shell command")
    return check_no_password(text)


#: command of a campaign or a bisect: it is shown and kept
ShellCommand = Annotated[
    str, AfterValidator(_shell_command), WithJsonSchema({"type": "string", "minLength": 1})
]
