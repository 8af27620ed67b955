"""Importers are found through their entry points: a third party's works as ours do."""

import sys
from pathlib import Path

import pytest

from cbt_plugins.config import plugins
from cbt_plugins.results.record_reader import importers, records_of
from cbt_plugins.results.result_file import Unreadable

TALLY = '''
from cbt_plugins.results.importers.importer import ClientImporter
from cbt_plugins.results.importers.client_parts import Parsed, Part


class Tally(ClientImporter):
    kind = "tally"

    def claims(self, head):
        return head.startswith("tally ")

    def parse(self, file):
        _, requests, seconds = file.text.split()
        part = Part("load", "GET", file.client, float(seconds), int(requests))
        return Parsed("tally", {0: [part]}, {"benchmark": "tally", "engine": "tally"})
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "tally-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: tally\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[cbt_plugins.importers]\ntally = tally_importer:Tally\n")
    (tmp_path / "site" / "tally_importer.py").write_text(TALLY)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "tally_importer", raising=False)


def test_ours_are_listed_once_and_have_their_names() -> None:
    assert plugins.built_in(plugins.IMPORTERS) == sorted(importers())
    for name, importer in importers().items():
        assert importer.kind == name


@pytest.mark.usefixtures("installed")
def test_a_third_partys_importer_reads_a_file_and_a_run_of_cbt(tmp_path: Path) -> None:
    one = tmp_path / "result.txt"
    one.write_text("tally 300 10\n")
    (record,) = records_of(one)
    assert (record.kind, record.usable) == ("tally", True)
    assert {its.metric: its.value for its in record.measurements} == {"obj_per_s": 30.0, "success_rate": 1.0}
    run = tmp_path / "archive" / "results" / "00000000" / "id-1"
    run.mkdir(parents=True)
    for client in ("a", "b"):
        (run / f"output.0.{client}").write_text("tally 300 10\n")
    (record,) = records_of(tmp_path / "archive")
    assert record.config["load.processes"] == 2
    assert next(its.value for its in record.measurements if its.metric == "obj_per_s") == 60.0


@pytest.mark.usefixtures("installed")
def test_names_of_cbts_own_files_are_left_out_in_the_folder_of_a_run(tmp_path: Path) -> None:
    names = ("ceph-client1.json", "perf_4k.json", "collectl.json", "historic.json")
    for folder in ("nights", "archive/results/00000000/id-1/client1"):
        (tmp_path / folder).mkdir(parents=True)
        for name in (*names, "load2.json"):
            (tmp_path / folder / name).write_text("tally 300 10\n")
    (record,) = records_of(tmp_path / "nights")
    assert record.config["load.processes"] == 5
    for path in (tmp_path / "archive", tmp_path / "archive" / "results" / "00000000" / "id-1"):
        (record,) = records_of(path)
        assert record.config["load.processes"] == 1


def test_without_it_the_file_is_refused_with_the_programs_that_are_known(tmp_path: Path) -> None:
    one = tmp_path / "result.txt"
    one.write_text("tally 300 10\n")
    with pytest.raises(Unreadable, match=r"not the result of a known program \(hsbench, .*fio, .*cosbench\)"):
        records_of(one)
