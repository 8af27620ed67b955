"""The conventions of AWS's tools: keys, endpoint and region of a profile, from the environment and two files.

The order is botocore's. No error shows a value of a file.
"""

from __future__ import annotations

import configparser
import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Mapping, Optional, Tuple

from cbt_plugins.archive_files import open_regular

#: variable that names a file, and the file
_CREDENTIALS = ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
_CONFIGURATION = ("AWS_CONFIG_FILE", "~/.aws/config")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_PROFILES = ("AWS_DEFAULT_PROFILE", "AWS_PROFILE")
_KEYS = ("aws_access_key_id", "aws_secret_access_key")
_TOKENS = ("aws_security_token", "aws_session_token")
#: other sources of keys that a profile may name
_ELSEWHERE = ("credential_process", "sso_session", "sso_start_url", "role_arn", "source_profile", "login_session")
#: bytes of a file; names of profiles in an error
_LARGEST, _SHOWN = 1 << 20, 10

_Sections = Mapping[str, Mapping[str, str]]


class AwsError(Exception):
    """A file, a profile or a value that is missing or cannot be used; the text is for the user."""


def profile_of_environment() -> Optional[str]:
    """Return the profile that the environment names, if any."""
    return _variable(_PROFILES)


def keys_of(profile: str) -> Tuple[str, str, str]:
    """Return access key, secret key and session token (or "") of a profile. Raises AwsError."""
    profiles = _Profiles.read()
    settings = profiles.settings(profile)
    sections = (profiles.credentials.get(profile, {}), profiles.configured.get(profile, {}))
    values = next((section for section in sections if section.get(_KEYS[0])), settings)
    missing = [key for key in _KEYS if not values.get(key)]
    elsewhere = next((key for key in _ELSEWHERE if settings.get(key)), None)
    if missing and elsewhere:
        command = f"aws configure export-credentials --profile {shlex.quote(profile)} --format env"
        text = f"run {command}, and give the keys by access_key: and secret_key:"
        raise AwsError(f"profile {profile} has its keys by {elsewhere}: {text}")
    if missing:
        raise AwsError(f"{profiles.places('or')}: profile {profile} has no {' and no '.join(missing)}")
    for key in (*_KEYS, *_TOKENS):
        if not values.get(key, "").isprintable():
            raise AwsError(f"profile {profile}: {key} has more than one line")
    token = next((values[key] for key in _TOKENS if values.get(key)), "")
    return values[_KEYS[0]], values[_KEYS[1]], token


def has_token(profile: str) -> bool:
    """Return whether the keys of a profile have a session token now; False if they cannot be read."""
    try:
        return bool(keys_of(profile)[2])
    except AwsError:
        return False


def endpoint_of(profile: Optional[str]) -> Optional[str]:
    """Return the URL for S3 of the environment, else of a profile; None without one. Raises AwsError."""
    profiles = _Profiles.read() if profile else _Profiles({}, {}, {})
    settings = profiles.settings(profile) if profile else {}
    ignored = os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") or settings.get("ignore_configured_endpoint_urls")
    if (ignored or "").lower() == "true":
        return None
    service = _nested(profiles.services.get(settings.get("services", ""), {}).get("s3", ""))
    return _variable(_ENDPOINTS) or service.get("endpoint_url") or settings.get("endpoint_url") or None


def region_of(profile: Optional[str]) -> Optional[str]:
    """Return the region of the environment, else of a profile; None without one. Raises AwsError."""
    named = _variable(_REGIONS)
    return named or (_Profiles.read().settings(profile).get("region") if profile else None) or None


def _variable(names: Tuple[str, ...]) -> Optional[str]:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


@dataclass(frozen=True)
class _Profiles:
    """Both files by profile, and the sections `[services NAME]` of the second by name."""

    credentials: _Sections
    configured: _Sections
    services: _Sections

    @classmethod
    def read(cls) -> _Profiles:
        """Read both files. Raises AwsError."""
        sections = _sections(_path(_CONFIGURATION))
        configured = {_name_in(title, "profile"): section for title, section in sections.items()}
        if "default" in sections:
            configured["default"] = sections["default"]
        services = {_name_in(title, "services"): section for title, section in sections.items()}
        return cls(_sections(_path(_CREDENTIALS)), configured, services)

    def settings(self, profile: str) -> Dict[str, str]:
        """Return the settings of a profile; those beside its credentials win. Raises AwsError where there is none."""
        names = sorted({*self.credentials, *self.configured} - {""})
        if profile not in names:
            listed = ", ".join(names[:_SHOWN]) + (" ..." if names[_SHOWN:] else "")
            raise AwsError(f"{self.places('and')}: no profile {profile}; there are: {listed or 'none'}")
        return {**self.configured.get(profile, {}), **self.credentials.get(profile, {})}

    @staticmethod
    def places(word: str) -> str:
        """Return the paths of both files."""
        return f"{_path(_CREDENTIALS)} {word} {_path(_CONFIGURATION)}"


def _path(file: Tuple[str, str]) -> Path:
    variable, default = file
    return Path(os.path.expanduser(os.environ.get(variable) or default))


def _name_in(title: str, kind: str) -> str:
    """Return NAME of the section "profile NAME", which may be quoted; "" for another kind of section."""
    try:
        words = shlex.split(title)
    except ValueError:
        return ""
    return words[1] if len(words) == 2 and words[0] == kind else ""


def _nested(text: str) -> Dict[str, str]:
    """Return the indented lines `key = value` of a value."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def _sections(path: Path) -> _Sections:
    """Return the sections of a file, {} of one that is not there, and of /dev/null. Raises AwsError."""
    parser = configparser.RawConfigParser()
    try:
        if os.path.samefile(path, os.devnull):  # by which a variable says that there is no file
            return {}
        with open_regular(path, _LARGEST) as file:
            _refuse_open(path, os.fstat(file.fileno()))
            parser.read_string(file.read().decode("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, configparser.Error) as error:
        text = error.strerror if isinstance(error, OSError) else "cannot be read as a file of AWS's profiles"
        raise AwsError(f"{path}: {text}") from None
    return {title: dict(parser.items(title)) for title in parser.sections()}


def _refuse_open(path: Path, facts: os.stat_result) -> None:
    """Raise AwsError for a file that others could have written: it says where signed requests go."""
    folder = os.stat(path.parent)
    if facts.st_uid not in (0, os.geteuid()):
        raise AwsError(f"{path}: belongs to another user (uid {facts.st_uid})")
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise AwsError(f"{path}: others can write it: chmod go-w {shlex.quote(str(path))}")
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        raise AwsError(f"{path.parent}: others can write this folder: chmod o-w {shlex.quote(str(path.parent))}")
