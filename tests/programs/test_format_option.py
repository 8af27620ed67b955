"""What every verb's output has: --format and -o, and a terminal's columns and colours."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import json
import os
import pty
import re
import sys
import threading
from html import unescape
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import archive_builder as made
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verb_words import FORMS

from cbt_plugins.formatting.blocks import Heading, Notes, TableGrid, TitledBlocks, Words
from cbt_plugins.formatting.formats import FORMATS as ALL_FORMATS
from cbt_plugins.formatting.formats.markdown import Markdown
from cbt_plugins.formatting.formats.terminal import Terminal, table_lines
from cbt_plugins.formatting.screen import Paper
from cbt_plugins.tools.__main__ import main
from cbt_plugins.tools.command import CommandError
from cbt_plugins.tools.format_option import format_of


@pytest.mark.parametrize("verb", FORMS)
def test_each_form_is_printed_and_written_alike(
    verb: str, words: Dict[str, List[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jinja2")
    told = {}
    for form in FORMS[verb]:
        status = main([verb, *words[verb], "--format", form, "-o", "-"])
        told[form] = capsys.readouterr().out
        file = tmp_path / f"x.{form}"
        assert main([verb, *words[verb], "-o", str(file)]) == status, form
        assert file.read_text() == told[form], form  # the file's name says the form
        assert capsys.readouterr().out == ""
    assert len(set(told.values())) == len(told) and "" not in told.values()
    assert main([verb, *words[verb]]) == status
    assert capsys.readouterr().out.startswith(told[FORMS[verb][0]])  # the first is the default
    if "json" in told:
        json.loads(told["json"])
    if "md" in told:
        assert "\n| " in told["md"] and "--: |" in told["md"]


@pytest.mark.parametrize(("verb", "encoding"), [("report", "ascii"), ("compare", "latin-1"), ("gate", "ascii")])
def test_signs_that_the_encoding_of_the_output_has_not(
    verb: str, encoding: str, words: Dict[str, List[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a job of a CI without a locale: a page is UTF-8, as it says, and so is a file."""
    pytest.importorskip("jinja2")
    for form in FORMS[verb]:
        file, printed = tmp_path / f"x.{form}", io.TextIOWrapper(io.BytesIO(), encoding)
        status = main([verb, *words[verb], "-o", str(file)])
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", printed)
            assert main([verb, *words[verb], "--format", form]) == status, form
        shown = file.read_bytes() if form == "html" else file.read_text("utf-8").encode(encoding, "backslashreplace")
        assert printed.buffer.getvalue()[: len(shown)] == shown, form  # type: ignore[attr-defined]


class Capitals(Markdown):
    name, suffixes, purpose, like = "capitals", ("caps",), "Markdown in capitals", "md"

    def text(self, content: Any, again: bool = False) -> str:
        return super().text(content, again).upper()


@pytest.mark.parametrize("verb", ["report", "compare", "sql"])
def test_a_new_format_is_in_each_verb_that_has_the_format_that_it_is_like(
    verb: str,
    words: Dict[str, List[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ALL_FORMATS, "capitals", Capitals)
    status = main([verb, *words[verb], "--format", "md", "-o", "-"])
    markdown = capsys.readouterr().out
    assert main([verb, *words[verb], "-o", str(tmp_path / "x.capitals")]) == status
    assert (tmp_path / "x.capitals").read_text() == markdown.upper() != markdown
    with pytest.raises(SystemExit):  # its text is no Markdown
        main(["size", *words["size"], "--format", "capitals"])
    assert "the formats are text, json" in capsys.readouterr().err


@pytest.mark.parametrize("verb", FORMS)
def test_a_form_that_is_not_there_names_those_that_are(
    verb: str, words: Dict[str, List[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, *words[verb], "--format", "xml"])
    assert ended.value.code == 2
    assert f"no such format: 'xml': the formats are {', '.join(FORMS[verb])}" in capsys.readouterr().err
    if "md" in FORMS[verb]:
        with pytest.raises(SystemExit):
            main([verb, *words[verb], "--format", "markdown"])
        assert "no such format: 'markdown': use md" in capsys.readouterr().err
    else:
        assert main([verb, *words[verb], "-o", str(tmp_path / "x.md")]) == 2
        assert "no such format: md" in capsys.readouterr().err


@pytest.mark.parametrize("verb", FORMS)
def test_a_suffix_of_another_format_names_those_that_are_known(
    verb: str, words: Dict[str, List[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.xlsx"
    assert main([verb, *words[verb], "-o", str(file)]) == 2
    also = {"text": ".text, .txt", "md": ".md, .markdown", "html": ".html, .htm", "prometheus": ".prometheus, .prom"}
    suffixes = [also.get(name, f".{name}") for name in FORMS[verb]]
    error = capsys.readouterr().err
    assert error.startswith(f"Error: -o {file}: no format has the suffix .xlsx: use {', '.join(suffixes)}, ")
    assert not file.exists()
    main([verb, *words[verb], "-o", str(file), "--format", FORMS[verb][0]])
    assert file.exists()


@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        *(("compare-18.2.7", "text"), ("out.log", "text"), ("host.example.org", "text"), ("out", "text")),
        *(("out.TXT", "text"), ("OUT.JSON", "json"), ("Out.Htm", "html"), ("x.tar.MD", "md"), ("x.2026.csv", "csv")),
        *((name, "") for name in ("p.pdf", "plot.PNG", "out.json.gz", "out.xml")),
    ],
)
def test_the_format_of_a_name(name: str, format_name: str) -> None:
    args = argparse.Namespace(format=None, output=f"a.csv/{name}", formats=FORMS["report"])
    with pytest.raises(CommandError) if not format_name else contextlib.nullcontext():
        assert format_of(args) == format_name


OLD = [
    ("report", "--json", "--format json -o FILE"),
    ("report", "--html", "--format html -o FILE"),
    ("report", "--text", "--format text"),
    ("compare", "--html", "--format html -o FILE"),
    ("sql", "--csv", "--format csv"),
    ("sql", "--json", "--format json"),
    ("export", "--csv", "--format csv -o FILE"),
    ("export", "--prometheus", "--format prometheus -o FILE"),
    ("export", "--upstream", "--format cbt -o DIR"),
    ("size", "--json", "--format json"),
    ("plan", "--json", "--format json"),
]


@pytest.mark.parametrize(("verb", "old", "new"), OLD)
def test_an_old_name_is_refused_with_the_new_one(
    verb: str, old: str, new: str, words: Dict[str, List[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, *words[verb], old, "x"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"Error: {old} was replaced: use {new}\n")


def test_what_is_no_regular_file_is_written_to_and_stays(words: Dict[str, List[str]], tmp_path: Path) -> None:
    """As /dev/null and /dev/stdout."""
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    read: List[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert main(["size", *words["size"], "-o", str(pipe)]) == 0
    reader.join()
    assert "throughput" in read[0] and pipe.is_fifo()
    target.touch()
    link.symlink_to(target)
    assert main(["size", *words["size"], "-o", str(link)]) == 0
    assert link.is_symlink() and target.read_text() == read[0]


def test_a_file_that_cannot_be_written(
    words: Dict[str, List[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["size", *words["size"], "-o", str(tmp_path / "none" / "x")]) == 2
    assert f"cannot write {tmp_path}/none/x: no such directory: {tmp_path}/none" in capsys.readouterr().err
    assert main(["size", *words["size"], "-o", str(tmp_path)]) == 2
    assert f"cannot write {tmp_path}: Is a directory" in capsys.readouterr().err
    for verb in ("gate", "report", "size"):  # the disk, and no wrong use
        assert main([verb, *words[verb], "--format", "text", "-o", "/dev/full"]) == 125
        assert capsys.readouterr().err == "Error: cannot write /dev/full: No space left on device\n"


def test_another_file_on_a_full_disk(
    words: Dict[str, List[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the comment of `pr`, and the page of `bisect`."""

    def write(_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "comment.md")

    monkeypatch.setattr("cbt_plugins.tools.verify.run", write)
    assert main(["verify", *words["report"]]) == 125
    assert capsys.readouterr().err == "Error: cannot write comment.md: No space left on device\n"


def test_results_of_other_programs_have_fewer_forms(capsys: pytest.CaptureFixture[str]) -> None:
    hsbench = next((Path(__file__).parents[1] / "data" / "imported" / "hsbench").glob("*.json"))
    assert main(["report", str(hsbench), "--format", "csv"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "run,phase,op,metric,unit,value,requests,usable,warnings"
    assert any(",PUT,obj_per_s," in line for line in told)
    assert main(["report", str(hsbench), "--format", "json"]) == 2
    assert "the formats are text, csv, md" in capsys.readouterr().err


# --- a terminal
# --------------------------------------------------------------------------------------------------------

RunInTerminal = Callable[[List[str]], str]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> RunInTerminal:
    """Runs a verb whose output is a terminal, and returns what it shows."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def run(words: List[str]) -> str:
        master, slave = pty.openpty()
        shown: List[bytes] = []

        def read() -> None:
            try:
                while True:
                    shown.append(os.read(master, 65536))
            except OSError:  # the last writer has closed it
                pass

        reader = threading.Thread(target=read)
        reader.start()
        with open(slave, "w") as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            main(words)
            monkeypatch.undo()
        reader.join()
        os.close(master)
        return b"".join(shown).decode().replace("\r\n", "\n")

    return run


def test_a_terminal_gets_colours(terminal: RunInTerminal, words: Dict[str, List[str]]) -> None:
    shown = terminal(["compare", *words["compare"]])
    assert "\x1b[33minconclusive\x1b[0m" in shown
    assert " - \x1b[33mone-run\x1b[0m (" in shown  # by their severity
    assert "   \x1b[33mwarning\x1b[0m: " in terminal(["report", *words["report"], "--format", "text"])


def test_no_color(terminal: RunInTerminal, words: Dict[str, List[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in terminal(["compare", *words["compare"]])


def test_colours_elsewhere_only_if_forced(
    words: Dict[str, List[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compare", *words["compare"]])
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    main(["compare", *words["compare"]])
    assert "\x1b[33minconclusive\x1b[0m" in capsys.readouterr().out
    for form in ("md", "csv", "json"):
        main(["compare", *words["compare"], "--format", form])
        assert "\x1b" not in capsys.readouterr().out
    main(["compare", *words["compare"], "-o", str(tmp_path / "x.txt")])
    assert "\x1b" not in (tmp_path / "x.txt").read_text()


def test_a_table_is_as_wide_as_the_terminal(
    terminal: RunInTerminal,
    words: Dict[str, List[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "90")
    shown = terminal(["gate", *words["gate"]])
    assert max(map(len, shown.splitlines())) <= 90
    monkeypatch.setenv("COLUMNS", "90")
    main(["gate", *words["gate"]])  # no terminal: nothing is fitted
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) > 90
    assert sorted("".join(told.split())) == sorted("".join(shown.split()))  # nothing is cut off


def test_the_tables_of_a_plan_are_as_wide_as_the_terminal(
    terminal: RunInTerminal, words: Dict[str, List[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def phases(text: str) -> List[str]:
        return text[text.index("  phases ") : text.index("  time ")].splitlines()

    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, phases(terminal(["plan", *words["plan"]])))) <= 60
    monkeypatch.setenv("COLUMNS", "60")
    terminal(["plan", *words["plan"], "-o", str(tmp_path / "plan.txt")])
    assert max(map(len, phases((tmp_path / "plan.txt").read_text()))) > 60


def test_the_cells_of_a_narrow_table() -> None:
    rows = [["name", "what it is", "n"], ["a-long-name-of-a-run", "some words about it", "12.5"]]
    assert list(table_lines(rows, [True, True, False], 30)) == [
        "name          what it is     n",
        "a-long-name-  some words  12.5",
        "of-a-run      about it",
    ]
    assert next(iter(table_lines(rows, 2, 5))) == "name          what      n"  # not less than words need
    rule = list(table_lines(rows, 2, ruled=True))[1]
    assert rule == "--------------------  -------------------  ----"


def test_what_a_file_says_gives_no_colour() -> None:
    """Control sequences of a name are escaped beside ours."""
    evil = "\x1b[31mred"
    blocks = [
        Heading(evil),
        Words((evil,)),
        Notes(evil, (evil,)),
        TableGrid((evil, "verdict"), ((evil, "worse"),), title=evil),
        TitledBlocks(evil, (Words((evil,)),)),
    ]
    text = Terminal(Paper(colours=True)).text(blocks)
    assert text.count("\x1b") == 2 and "\x1b[31mworse\x1b[0m" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("obj_per_s of id_1 is -5 % [mix], p < 0.05 & 2 * 3 ~10", None),  # as before: nothing of it is Markdown
        ("-5.0 %", None),
        ("1.5 s", None),
        ("# h", "\\# h"),
        ("- a", "\\- a"),
        ("---", "\\---"),
        ("1. a", "1\\. a"),
        ("> a", "\\> a"),
        ("_a_ *b* `c` ~~d~~", "\\_a\\_ \\*b\\* \\`c\\` ~\\~d\\~\\~"),
        ("[a](javascript:b) ![c](d)", "\\[a\\](javascript:b) ![c\\](d)"),
        ("[mix]: http://b", "\\[mix\\]: http://b"),
        ("a <b>c</b> <!-- &lt; | \\", "a \\<b>c\\</b> \\<!-- \\&lt; \\| \\\\"),
        ("a\n# b", "a # b"),
    ],
)
def test_markdown_shows_texts_as_they_are(text: str, shown: Optional[str]) -> None:
    assert Markdown().text([Words((text,))]) == f"{text if shown is None else shown}\n"
    assert Markdown().text([Notes(text, (text,))]) == f"{shown or text}:\n\n- {shown or text}\n"
    assert Markdown().text([TitledBlocks("t", (Words((text, text)),))]).count(f"- {shown or text}\n") == 2


def test_a_cell_begins_no_block() -> None:
    grid = TableGrid(("# a", "b|c"), (("- ", "+5"), ("a\\|b\nc", "x\\")), title="# t")
    lines = Markdown().text([grid]).splitlines()
    assert lines == ["\\# t:", "", "| # a | b\\|c |", "| :--- | ---: |", "| -  | +5 |", "| a\\\\\\|b c | x\\\\ |"]


@settings(deadline=None)
@given(st.text(st.sampled_from("ab1 \\`*_[]<>&|#-+.!()~:=/;\n\t"), max_size=30))
def test_what_a_reader_of_markdown_makes_of_it(text: str) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    reader = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for block, tags in (
        (Words((text,)), {"p"}),
        (Notes("n", (text,)), {"p", "ul", "li"}),
        (TableGrid(("a",), ((text,),)), {"table", "thead", "tbody", "tr", "th", "td"}),
    ):
        html = reader.render(Markdown().text([block]))
        assert set(re.findall(r"<(\w+)", html)) <= tags, html
        its = unescape(re.sub(r"<[^>]*>", " ", html)).split()
        assert its[-len(text.split()) :] == text.split() or not text.split(), html


def test_files_for_people_have_no_control_sequences(tmp_path: Path) -> None:
    run = made.small(tmp_path / "a")
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["ceph"]["overall"] = {"ceph version \x1b[31m\x9b \u202e": 4}
    (run / "manifest.json").write_text(json.dumps(manifest))
    for form in ("txt", "md"):
        assert main(["report", str(run), "-o", str(tmp_path / f"x.{form}")]) == 0
        shown = (tmp_path / f"x.{form}").read_text(encoding="ascii", errors="strict")
        assert r"\x1b[31m\x9b \u202e" in shown


def test_a_cell_of_csv_is_no_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.small(tmp_path)
    query = "SELECT '=1+1' AS a, '+1' AS b, '@x' AS c, chr(9) AS d, '-x' AS e, '-5' AS f, -5 AS g, '-' AS h,"
    query += " 'a=' AS \"=i\""
    assert main(["sql", str(tmp_path), query, "--format", "csv"]) == 0
    assert capsys.readouterr().out == "a,b,c,d,e,f,g,h,'=i\n'=1+1,'+1,'@x,'\t,'-x,-5,-5,-,a=\n"
    (run,) = tmp_path.glob("results/*/id-*")
    plan = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps({**plan, "benchmark": "=2+5"}))
    assert main(["export", str(tmp_path), "-o", str(tmp_path / "x.csv")]) == 0
    assert ",'=2+5," in (tmp_path / "x.csv").read_text()


def test_a_verdict_has_its_colour_also_where_its_cell_is_several_lines() -> None:
    grid = TableGrid(("outcome", "n"), (("regression: worse by 11.9 to 16.5 %", "50000"), ("better-than", "5")))
    lines = Terminal(Paper(20, colours=True)).text([grid]).splitlines()
    assert lines[1] == "\x1b[31mregression\x1b[0m:    50000" and sum(line.count("\x1b") for line in lines) == 2
    assert " ".join(lines[2:4]).split() == ["worse", "by", "11.9", "to", "16.5", "%"]
