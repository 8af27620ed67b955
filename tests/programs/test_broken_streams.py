"""How a verb ends without a reader, with an output or input that is closed, and by an error of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from verb_words import CONFIGS, FORMS

from cbt_plugins.cbt import run_loop
from cbt_plugins.formatting.screen import printable_output
from cbt_plugins.tools.__main__ import main


@contextlib.contextmanager
def unread(*names: str) -> Iterator[None]:
    """Let streams be a pipe that nobody reads any more."""
    streams = {name: getattr(sys, name) for name in names}
    for name in names:
        reader, writer = os.pipe()
        os.close(reader)
        setattr(sys, name, os.fdopen(writer, "w", buffering=1))
    try:
        yield
    finally:
        for name, stream in streams.items():
            getattr(sys, name).close()
            setattr(sys, name, stream)


@pytest.mark.parametrize("verb", [*FORMS, "--help"])
def test_without_a_reader_a_verb_ends_quietly(
    verb: str, words: Dict[str, List[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """As in `cbt-tools VERB | head`: neither "done" nor "a regression"."""
    with unread("stdout"):
        assert main([verb, *words.get(verb, [])]) == 141
    assert capsys.readouterr().err == ""
    with unread("stdout", "stderr"):  # 2>&1
        assert main([verb, *words.get(verb, [])]) == 141


def test_a_report_of_cbts_form_without_a_reader(
    words: Dict[str, List[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with unread("stdout"):
        assert main(["export", *words["export"], "--format", "cbt", "-o", str(tmp_path)]) == 141
    assert capsys.readouterr().err == ""


def test_head(words: Dict[str, List[str]]) -> None:
    tool = f"{sys.executable} -m cbt_plugins.tools"
    script = f"set -o pipefail; {tool} sql --list x | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.stderr == "" and done.stdout.splitlines()[0].startswith("runs: ")
    assert done.stdout.splitlines()[-1] in ("0", "141")  # 0: everything was in the pipe before head ended


def test_what_changes_a_cluster_goes_on_without_a_reader(tmp_path: Path) -> None:
    with unread("stdout", "stderr"), printable_output(endures=True):
        print("1 undone")
        print("and the next", file=sys.stderr)
        sys.stdout.flush()
    (tmp_path / "plan.json").touch()
    with unread("stdout", "stderr"):
        assert main(["undo", str(tmp_path)]) == 0  # nothing is open: its status, and not that of the pipe


@pytest.mark.parametrize("how", ["unread", "full"])
def test_a_run_goes_on_without_its_messages(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: run_loop.RunLoop) -> int:
        for text in ("the load begins", "a fault is undone"):
            logging.getLogger("cbt_plugins.faults").info(text)
        print("Error: 1 of 2 runs", file=sys.stderr)
        return 1

    monkeypatch.setattr(run_loop.RunLoop, "run", run)
    monkeypatch.setattr(logging.getLogger("cbt_plugins"), "handlers", [])
    with unread("stderr") if how == "unread" else unwritable("full", "stderr"):
        assert run_loop.main(["-a", str(tmp_path), str(CONFIGS / "quickstart.yaml")]) == 1


@contextlib.contextmanager
def unwritable(how: str, *names: str) -> Iterator[None]:
    """Let streams, by default standard output, be a full disk, or closed."""
    names = names or ("stdout",)
    streams = {name: getattr(sys, name) for name in names}
    with contextlib.ExitStack() as disk:
        for name in names:
            setattr(sys, name, disk.enter_context(open("/dev/full", "w", buffering=1)) if how == "full" else None)
        try:
            yield
        finally:
            for name, stream in streams.items():
                setattr(sys, name, stream)


NO_OUTPUT = {
    "full": "Error: cannot write to standard output: No space left on device\n",
    "closed": "Error: cannot write to standard output: it is closed\n",
}


@pytest.mark.parametrize("how", ["full", "closed"])
@pytest.mark.parametrize("verb", [*FORMS, "verify", "--help", "--version"])
def test_an_output_that_cannot_be_written_is_no_verdict(
    verb: str, how: str, words: Dict[str, List[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1 is a regression of `gate`, and a changed file of `verify`."""
    with unwritable(how):
        assert main([verb, *words.get("report" if verb == "verify" else verb, [])]) == 125
    assert capsys.readouterr().err == NO_OUTPUT[how]
    with unwritable(how, "stdout", "stderr"):
        assert main([verb, *words.get("report" if verb == "verify" else verb, [])]) == 125


def test_an_output_that_cannot_be_written_and_an_error_that_nobody_reads() -> None:
    with unwritable("full"), unread("stderr"):
        assert main(["--version"]) == 141


@pytest.mark.parametrize("how", ["full", "closed"])
@pytest.mark.parametrize("verb", ["gate", "verify", "undo"])
def test_an_error_that_cannot_be_said_has_its_status(verb: str, how: str, tmp_path: Path) -> None:
    with unwritable(how, "stderr"):
        assert main([verb, *[str(tmp_path / "none")] * (2 if verb == "gate" else 1)]) == 2


@pytest.mark.parametrize("how", ["full", "closed"])
@pytest.mark.parametrize("own_status", [0, 1])
def test_what_changes_a_cluster_goes_on_without_an_output(
    own_status: int, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def work(_: Any) -> int:
        for text in ("1 undone", "2 undone"):
            print(text, flush=True)
        print("all undone", file=sys.stderr)
        return own_status

    monkeypatch.setattr("cbt_plugins.tools.undo.run", work)
    with unwritable(how):
        assert main(["undo", str(tmp_path)]) == (own_status or 125)
    assert capsys.readouterr().err == "all undone\n" + NO_OUTPUT[how]


@pytest.mark.parametrize("how", ["full", "closed"])
@pytest.mark.parametrize("line", [f"campaign plan {CONFIGS / 'campaign-lab.yaml'}", "campaign --help", "pr --help"])
def test_an_answer_of_such_a_verb_is_not_lost_without_a_word(
    line: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with unwritable(how):
        assert main(line.split()) == 125
    assert capsys.readouterr().err == NO_OUTPUT[how]
    with unread("stdout"), contextlib.suppress(SystemExit):
        assert main(line.split()) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("how", ["full", "closed"])
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_run_whose_help_cannot_be_written(how: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with unwritable(how), pytest.raises(SystemExit) as end:
        run_loop.main([option])
    assert end.value.code == 125 and capsys.readouterr().err == NO_OUTPUT[how]
    with unread("stdout"), pytest.raises(SystemExit) as end:
        run_loop.main([option])
    assert end.value.code == 0 and capsys.readouterr().err == ""


def test_a_query_from_an_input_that_is_closed(
    words: Dict[str, List[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["sql", words["sql"][0], "-"]) == 2
    assert capsys.readouterr().err == "Error: cannot read the query: standard input is closed\n"


@pytest.mark.parametrize("verb", ["gate", "verify"])
def test_an_error_of_the_program_is_no_verdict(
    verb: str, words: Dict[str, List[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: Any) -> int:
        raise RuntimeError("broken")

    monkeypatch.setattr(f"cbt_plugins.tools.{verb}.run", broken)
    assert main([verb, *words["gate" if verb == "gate" else "report"]]) == 125
    *trace, error = capsys.readouterr().err.splitlines()
    assert trace[-1] == "RuntimeError: broken" and error.startswith("Error: this is an error of cbt-plugins: ")


@pytest.mark.parametrize("redirection", [">&-", "2>&-"])
def test_failed_runs_under_cbt_py_without_an_output(redirection: str, tmp_path: Path) -> None:
    file = tmp_path / "fio.yaml"
    file.write_text("cluster: {iterations: 1}\n")
    settings = "types.SimpleNamespace(benchmarks={'fio': {}}, cluster={'iterations': 1})"
    code = "import pathlib, types\nfrom cbt_plugins.cbt.cbt_session import Session\n"
    code += f"Session({settings}, pathlib.Path({str(file)!r}))"
    assert subprocess.run(["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, code]).returncode == 1
