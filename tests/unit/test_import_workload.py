"""`cbt-tools import cosbench`: XML workloads as files of ours, and what of them is left behind."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
import yaml

from cbt_plugins.config.converters.conversion import ConversionError
from cbt_plugins.config.converters.cosbench import convert
from cbt_plugins.config.file_check import load
from cbt_plugins.config.yaml_source import YamlSource
from cbt_plugins.plan import Plan
from cbt_plugins.tools.__main__ import main

SIZES = "sizes=h(1|1|50,64|64|30,100|200|20)KB"
WORKLOAD = f"""\
<?xml version="1.0" encoding="UTF-8" ?>
<!-- as RGWtest and genXMLs write them -->
<workload name="Hybrid SS" description="five buckets">
  <storage type="s3" config="accesskey=AKEY;secretkey=SKEY;endpoint=http://lb:5000;timeout=900000"/>
  <workflow config="cprefix=abc">
    <workstage name="init"><work type="init" workers="1" config="containers=r(1,5)"/></workstage>
    <workstage name="prepare">
      <work type="prepare" workers="40" config="containers=r(1,5);objects=r(1,2000);{SIZES}"/>
    </workstage>
    <workstage name="MAIN" closuredelay="30">
      <work name="Hybrid 2x" workers="40" runtime="3600">
        <operation type="read" ratio="60" config="containers=u(3,5);objects=u(1,2000)"/>
        <operation type="list" ratio="10" config="containers=u(3,5);objects=u(1,2000)"/>
        <operation type="write" ratio="16" config="containers=u(1,2);objects=s(2001,4000);{SIZES}"/>
        <operation type="delete" ratio="14" config="containers=u(1,2);objects=u(1,4000)"/>
      </work>
    </workstage>
    <workstage name="cleanup"><work type="cleanup" config="containers=r(1,5);objects=r(1,4000)"/></workstage>
    <workstage name="dispose"><work type="dispose" workers="1" config="containers=r(1,5)"/></workstage>
  </workflow>
</workload>
"""


def converted(tmp_path: Path, text: str) -> Tuple[str, str, Plan]:
    """The file, what was not carried over, and the plan that the file is."""
    path = tmp_path / "w.xml"
    path.write_text(text)
    made, notes = convert(path)
    (run,) = load(YamlSource(made.encode(), "made.yaml")).runs
    return made, "\n".join(notes), run.plan


def test_a_hybrid_workload(tmp_path: Path) -> None:
    made, notes, plan = converted(tmp_path, WORKLOAD)
    assert plan.s3.urls == ("http://lb:5000",) and plan.cbt_load.deadline == 900
    assert "AKEY" not in made + notes and "SKEY" not in made + notes
    assert len(plan.buckets) == 5 and plan.drivers[0].workers == 40
    assert plan.buckets[0].sizes == ((1000, 1000, 0.5), (64000, 64000, 0.3), (100000, 200000, 0.2))
    fill, hybrid, delay, delete = plan.phases
    assert fill.goal and fill.goal.objects == 2000
    assert (hybrid.name, hybrid.duration) == ("hybrid-2x", 3600.0)
    assert hybrid.mix == {"GET": 60, "LIST": 10, "PUT": 16, "DELETE": 14}
    selected = {op: keys.select for op, keys in hybrid.keys.items()}
    assert selected == {"GET": "u(1,N)", "PUT": "s(N+1,2N)", "DELETE": "u(1,2N)"}
    assert hybrid.keys["DELETE"].absent and not hybrid.keys["GET"].absent
    assert [len(hybrid.roles[op]) for op in ("GET", "PUT")] == [3, 2]
    assert (delay.kind, delay.duration, delete.kind) == ("wait", 30.0, "delete")
    assert "# The workload is called Hybrid SS." in made and "# Not carried over: dispose:" in made


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ('type="s3"', 'type="swift"', "storage swift: the load here is S3"),
        ("endpoint=http://lb:5000;", "", "the endpoint of storage s3 (EDIT s3.urls)"),
        ('runtime="3600"', 'totalOps="500"', "it lasts 5 minutes here"),
        ('type="list"', 'type="mwrite"', "operation mwrite of hybrid-2x"),
        ("objects=u(1,4000)", "objects=c(7)", "objects=c(7) of delete: any object that is there"),
        ("s(2001,4000);" + SIZES, "s(2001,4000);sizes=c(4)MB", "a bucket has one set of sizes here"),
        ('<work name="Hybrid 2x"', '<work type="repair"/><work name="Hybrid 2x"', "work main of type repair"),
        (' name="cleanup"><work', ' name="x"><work workers="3"><operation type="read"/></work><work', "ran side by"),
        ('runtime="3600">', 'runtime="3600"><operation type="read" ratio="1"/>', "the second read of hybrid-2x"),
        ('runtime="3600"', 'runtime="3600" rampdown="10"', "rampdown=10 of work Hybrid 2x"),
        ('runtime="3600"', 'runtime="3600" afr="0"', "afr=0 of work Hybrid 2x"),
        ('runtime="3600"', 'runtime="3600" driver="driver1"', "driver=driver1 of work Hybrid 2x"),
        ('runtime="3600"', 'runtime="3600" totalOps="500"', "it ends by its time here"),
        ('runtime="3600"', 'runtime="3600" division="object"', "division=object of work Hybrid 2x"),
        ("s(2001,4000);", "s(2001,4000);content=zero;", "content=zero of operation write"),
        ("r(1,2000);", "r(1,2000);chunked=true;", "chunked=true of work prepare"),
        ("s(2001,4000);", "s(2001,4000);oprefix=a;", None),
        ("s(2001,4000);", "s(2001,4000);cprefix=x;", "cprefix=abc, x: all operations work on the same objects here"),
        ('name="MAIN"', 'name="MAIN" trigger="x.sh"', "trigger=x.sh of workstage MAIN"),
        ("timeout=900000", "timeout=900000;path_style_access=false", "path_style_access of the storage"),
        ("timeout=900000", "timeout=900000;path_style_access=true;proxyhost=;proxyport=", None),
        ("timeout=900000", "timeout=900000;proxyhost=proxy1", "proxyhost of the storage"),
        ("objects=r(1,2000);", "objects=r(1001,2000);", "objects=1001 to 2000 of prepare: the fill writes 1 to 2000"),
        ("u(3,5);objects=u(1,2000)", "u(3,5);objects=u(1,900)", "objects=u(1,900) of get: each client has its own N"),
        ("s(2001,4000);", "s(2011,4000);", "objects=s(2011,4000) of put: each client has its own N here"),
        ('<work name="Hybrid 2x"', '<storage type="s3"/><work name="Hybrid 2x"', "works: all use the first"),
    ],
)
def test_what_is_left_behind_is_named(tmp_path: Path, old: str, new: str, note: Optional[str]) -> None:
    assert old in WORKLOAD
    _, usual, _ = converted(tmp_path, WORKLOAD)
    made, notes, _ = converted(tmp_path, WORKLOAD.replace(old, new))
    assert (notes == usual) if note is None else note in notes and note not in usual and note in made


def test_the_lines_to_edit_are_marked(tmp_path: Path) -> None:
    made, _, _ = converted(tmp_path, WORKLOAD)
    edited = [line.strip() for line in made.partition("benchmarks:")[2].splitlines() if "EDIT" in line]
    marks = ["user: cbt  # EDIT: an existing RGW user", "workers: 40  # EDIT: divide by the clients"]
    assert edited == marks
    made, _, _ = converted(tmp_path, WORKLOAD.replace("endpoint=http://lb:5000;", ""))
    assert "      urls: ['http://osd1:8080']  # EDIT: gateways\n" in made


def test_what_cosbench_writes_for_all_works_is_silent(tmp_path: Path) -> None:
    """Its own copy of a workload names every default."""
    _, usual, _ = converted(tmp_path, WORKLOAD)
    names = 'interval="5" rampup="0" rampdown="0" totalBytes="0" config="" afr='
    text = WORKLOAD.replace('runtime="3600"', f'runtime="3600" division="none" totalOps="0" {names}"200000"')
    text = text.replace('type="init" workers="1"', 'type="init" workers="1" division="container" totalOps="1" afr="0"')
    _, notes, _ = converted(tmp_path, text)
    assert notes == usual


def test_a_second_prepare_of_the_same_containers(tmp_path: Path) -> None:
    """Its objects are in the fill, in whatever order the two are; its sizes are not."""
    work = f'<work type="prepare" workers="40" config="containers=r(1,5);objects=r(1,2000);{SIZES}"/>'
    first, second = work.replace("2000", "1000"), work.replace("r(1,2000)", "r(1001,2000)")
    _, usual, _ = converted(tmp_path, WORKLOAD)
    for works in (first + second, second + first):
        _, notes, plan = converted(tmp_path, WORKLOAD.replace(work, works))
        assert notes == usual and plan.phases[0].goal and plan.phases[0].goal.objects == 2000
    _, notes, plan = converted(tmp_path, WORKLOAD.replace(work, first + second.replace(SIZES, "sizes=c(32)MB")))
    assert "sizes=c(32)MB of prepare: a bucket has one set of sizes here (EDIT size)" in notes
    assert plan.buckets[0].sizes[0] == (1000, 1000, 0.5)


def test_workers_are_those_of_all_drivers(tmp_path: Path) -> None:
    _, notes, _ = converted(tmp_path, WORKLOAD)
    assert "workers of all drivers together: here each client has as many (EDIT: divide by the clients)" in notes
    _, notes, _ = converted(tmp_path, WORKLOAD.replace('workers="40"', 'workers="1"'))
    assert "workers" not in notes


def test_a_rampup_is_not_measured(tmp_path: Path) -> None:
    """COSBench: all workers run in it, and it is no part of the runtime."""
    _, usual, _ = converted(tmp_path, WORKLOAD)
    _, notes, plan = converted(tmp_path, WORKLOAD.replace('runtime="3600"', 'runtime="3600" rampup="120"'))
    assert (plan.phases[1].warmup, plan.phases[1].ramp, plan.phases[1].duration) == (120, 0, 3600)
    assert notes == usual
    _, notes, plan = converted(tmp_path, SEVERAL.replace('runtime="60"', 'runtime="60" rampup="9"'))
    assert plan.phases[1].warmup == 9 and "works of main have different times of rampup" in notes


SEVERAL = """\
<workload name="several"><storage type="s3" config="endpoint=http://lb:5000"/><workflow>
  <workstage name="small">
    <work type="prepare" workers="4" config="containers=r(1,2);objects=r(1,100);sizes=c(4)KB"/>
  </workstage>
  <workstage name="large">
    <work type="prepare" workers="4" config="containers=r(3,3);objects=r(1,7);sizes=c(1)MB"/>
  </workstage>
  <workstage name="main" closuredelay="5">
    <work name="Readers" workers="16" runtime="60" config="containers=u(1,2);objects=u(1,100)">
      <operation type="read" ratio="100"/>
    </work>
    <work name="mixed" workers="3" runtime="90">
      <operation type="write" ratio="60" config="containers=c(4);objects=s(1,500);sizes=c(9)KB"/>
      <operation type="delete" ratio="40" config="containers=c(3);objects=u(1,7)"/>
    </work>
  </workstage>
  <workstage name="alone">
    <work name="lists" workers="2" runtime="30"><operation type="list" ratio="100"/></work>
  </workstage>
  <workstage name="end">
    <work type="cleanup" config="containers=r(1,2)"/><work type="cleanup" config="containers=r(3,4)"/>
  </workstage>
</workflow></workload>
"""


def test_works_side_by_side(tmp_path: Path) -> None:
    _, notes, plan = converted(tmp_path, SEVERAL)
    described = [(bucket.key, bucket.sizes[0][0], bucket.objects) for bucket in plan.buckets]
    large = ("part2", 1000000, 7)
    assert described == [("part1-1", 4000, 100), ("part1-2", 4000, 100), large, ("part3", 9000, 1)]
    assert [phase.kind for phase in plan.phases] == ["fill", "hybrid", "wait", "hybrid", "delete"]
    main, alone = plan.phases[1], plan.phases[3]
    assert (main.name, main.duration, main.mix) == ("main", 90.0, None)
    readers, mixed = main.works
    assert (readers.name, readers.workers, readers.mix) == ("readers", 16, {"GET": 100})
    assert readers.roles == {"GET": ("part1-1", "part1-2")} and readers.keys["GET"].select == "u(1,N)"
    assert mixed.workers == 3 and mixed.roles == {"PUT": ("part3",), "DELETE": ("part2",)}
    assert mixed.keys["PUT"].select == "s(1,500)" and mixed.keys["DELETE"].absent
    # workers of its own: a work, though it is alone
    assert [(work.name, work.workers, work.mix) for work in alone.works] == [("lists", 2, {"LIST": 100})]
    assert "side by side" not in notes and "works of main end at different times" in notes
    assert "containers that begin empty" in notes


def test_a_workload_on_data_of_another_one(tmp_path: Path) -> None:
    text = WORKLOAD.replace('type="prepare"', 'type="init"')
    _, notes, plan = converted(tmp_path, text)
    assert plan.phases[0].goal and plan.phases[0].goal.objects == 2000 and "(EDIT fill.objects and size)" in notes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no XML"),
        ("<a/>", "no COSBench workload"),
        (WORKLOAD.replace("u(3,5)", "RANGE"), "containers=RANGE: must be c(n)"),
        (WORKLOAD.replace("r(1,5)", "r(1,x)"), "must be whole numbers"),
        (WORKLOAD.replace('ratio="60"', 'ratio="nan"'), "ratio=nan: must be a number from 0 to 100"),
        (WORKLOAD.replace("h(1|1|50,", "h(1|1|,"), "must be h(low|high|weight,...)"),
        (WORKLOAD.replace("<workload", '<!DOCTYPE a [<!ENTITY b "c">]><workload', 1), "has no DOCTYPE"),
        (WORKLOAD.replace("prepare", "x").replace('name="Hybrid 2x"', 'type="y"'), "no work that makes load"),
        ("<workload>" + " " * (1 << 20), "larger than 1 MiB"),
    ],
)
def test_what_is_no_workload(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "w.xml"
    path.write_text(text)
    with pytest.raises(ConversionError) as error:
        convert(path)
    assert said in str(error.value)


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "w.xml", tmp_path / "made.yaml"
    source.write_text(WORKLOAD)
    assert main(["import", "cosbench", str(source), "-o", str(target)]) == 0
    assert "Warning: not converted: the keys" in capsys.readouterr().err
    made: Dict[str, Any] = yaml.safe_load(target.read_text())
    assert made["benchmarks"]["warp"]["engine"] == "cbt-load"
    capsys.readouterr()
    assert main(["import", "cosbench", str(source), "-o", str(target)]) == 2  # nothing is overwritten
    assert capsys.readouterr().err.startswith(f"Error: {target}: the file exists: name a new file")
    assert main(["import", "cosbench", str(tmp_path / "none.xml")]) == 2
    assert "none.xml: No such file or directory" in capsys.readouterr().err


def test_a_file_that_the_disk_has_no_room_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "w.xml", tmp_path / "made.yaml"
    source.write_text(WORKLOAD)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        status = main(["import", "cosbench", str(source), "-o", str(target)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert status == 125 and capsys.readouterr().err == f"Error: cannot write {target}: File too large\n"
    assert not target.exists()  # else the next attempt would be refused


@pytest.mark.parametrize("words", [["import", "--help"], ["import", "fio", "fio.json"]])
def test_who_reads_results_is_said_to_those_who_would_import_them(
    words: List[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    out, err = capsys.readouterr()
    assert "results of other programs are read by `cbt-tools report FILE` and `compare`" in out + err
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    assert "or results of another program (fio, hsbench, ...)" in " ".join(capsys.readouterr().out.split())
