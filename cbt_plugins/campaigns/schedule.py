"""The schedule of a campaign: its arms, the order of their cycles in blocks, what is compared, and its folder.

    FOLDER/campaign.json    the file that it was started with, secrets masked; a campaign has one
    FOLDER/arms/NAME.yaml   the CBT file of each arm
    FOLDER/trials/01-2-NAME one trial: block, place in the block, arm
    FOLDER/rehearsal/NAME   of a pull request: a cycle of an arm before the blocks

With `code_or_defaults` the two arms become four: CODE, and CODE+OTHER-defaults, which is CODE with the options set to
the other's defaults (campaigns.options).
"""

from __future__ import annotations

import random
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.campaigns.default_options import (
    FOLDER,
    SCRIPT,
    OptionReader,
    Settings,
    Swapped,
    merged_options,
    option_lines,
    set_line,
)
from cbt_plugins.campaigns.default_options import stored as stored_options
from cbt_plugins.campaigns.trial import CAMPAIGN, PROGRAM, Cycle, Trial, finished
from cbt_plugins.compare.statistics.sequential import Design
from cbt_plugins.compare.table import Rules
from cbt_plugins.config import plugins
from cbt_plugins.config.campaign import KEY, CampaignSection, file_of, with_fault_files, yaml_text
from cbt_plugins.config.cluster import CEPHADM, conf_file, installed_program
from cbt_plugins.config.file_check import Config, load
from cbt_plugins.config.section_to_plan import our_sections
from cbt_plugins.config.yaml_source import MASK, YamlSource, mask_secrets
from cbt_plugins.journal import read_json, write_json, write_whole
from cbt_plugins.metrics import METRICS

STATE, VERSION = "campaign.json", 1
#: folder of the cycles before the blocks of a pull request
REHEARSAL = "rehearsal"
#: `rules` of a campaign, which it keeps. 1, or none: no rows that may be 0, gaps by ratios. 2: both by differences
BY_RATIOS, BY_DIFFERENCES = RULES = (1, 2)
#: between the two names of an arm that has one release's code and the other's defaults
_CROSS = "+"


class CampaignError(ValueError):
    """Why a campaign cannot be made, for the user."""


@dataclass(frozen=True)
class Contrast:
    """What is compared: arm -> its weight in the log ratio of a block; the weights of new arms are above 0."""

    name: str
    weights: Mapping[str, float]


@dataclass(frozen=True)
class PlannedTrial:
    """One trial of a block."""

    block: int  # from 1; 0: the rehearsal of a pull request
    place: int  # from 1
    arm: str

    @property
    def name(self) -> str:
        return f"{self.block:02d}-{self.place}-{self.arm}" if self.block else f"the {REHEARSAL} of {self.arm}"


def block_order(arms: Sequence[str], number: int, seed: int) -> List[str]:
    """Return the arms of the trials of a block. Two arms: A B B A or B A A B, so that a steady drift cancels out.

    More arms: each once. Of four blocks the first two have an order that is drawn, the next two reverse it. Were the
    reverse next to its order, an arm would end one block and begin the next, and trials that resemble their neighbours
    would make blocks resemble each other.
    """
    drawn = number if len(arms) == 2 or (number - 1) % 4 < 2 else number - 2
    order = random.Random(f"{seed}/{drawn}").sample(list(arms), len(arms))
    if len(arms) == 2:
        return [*order, *reversed(order)]
    return order if drawn == number else order[::-1]


@dataclass(frozen=True)
class Schedule:
    """A campaign as its file asks for it."""

    config: Config
    section: CampaignSection
    folder: Path
    arms: Tuple[str, ...]  # the base first
    contrasts: Tuple[Contrast, ...]
    swapped: Optional[Swapped] = None  # the defaults that differ, once they are read
    decision_rules: int = BY_DIFFERENCES

    @property
    def design(self) -> Design:
        section = self.section
        return Design(section.blocks, section.alpha, section.margin, section.spending)

    @property
    def rules(self) -> Rules:
        """The rules of a comparison of the arms."""
        given = "margin" in self.section.model_fields_set
        return Rules(self.section.margin if given else None, self.section.alpha)

    def design_of(self, metric: str) -> Design:
        """Return the rules of the decision on a row."""
        return replace(self.design, margin=self.margin_of(metric))

    def in_unit(self, metric: str) -> bool:
        """Return whether the blocks of a row give differences, and not log ratios."""
        return METRICS[metric].additive and self.decision_rules == BY_DIFFERENCES

    def margin_of(self, metric: str) -> float:
        """Return the margin of a row, a share or in the metric's unit."""
        formerly_a_share = METRICS[metric].additive and not self.in_unit(metric)
        return self.section.margin if formerly_a_share else self.rules.margin_of(metric)

    @property
    def per_arm(self) -> int:
        """Cycles of each arm in a block."""
        return 2 if len(self.arms) == 2 else 1

    def block(self, number: int) -> List[PlannedTrial]:
        """Return the trials of a block."""
        order = block_order(self.arms, number, self.section.seed)
        return [PlannedTrial(number, place, arm) for place, arm in enumerate(order, 1)]

    def folder_of(self, trial: PlannedTrial) -> Path:
        return self.folder / "trials" / trial.name if trial.block else self.folder / REHEARSAL / trial.arm

    def file_of(self, arm: str) -> Path:
        return self.folder / "arms" / f"{arm}.yaml"

    def cycle(self, arm: str) -> Cycle:
        """Return the cycle that a trial of an arm runs."""
        section, code = self.section, self.code_of(arm)
        return Cycle(
            arm=arm,
            file=self.file_of(arm).resolve(),
            prepare=(*section.prepare, *section.arms[code].prepare, *self._restarted(arm)),
            program=section.program or PROGRAM,
            through=section.through or "",
            limit=section.prepare_limit,
            cycle_limit=section.cycle_limit,
            environment={CAMPAIGN: str(self.folder.resolve())},
        )

    def data_of(self, arm: str) -> Dict[str, Any]:
        """Return the CBT file of an arm."""
        data: Dict[str, Any] = with_fault_files(file_of(self.config.data, self.section.arms[self.code_of(arm)]))
        for name in self._options(arm) and our_sections(plugins.BENCHMARKS):
            section = data["benchmarks"].get(name)
            if section is not None:
                settings = dict(section.get("settings") or {})
                settings["config"] = merged_options(self._options(arm), settings.get("config") or {})
                data["benchmarks"] = {**data["benchmarks"], name: {**section, "settings": settings}}
        return data

    def code_of(self, arm: str) -> str:
        """Return the arm of the file that an arm has its code of."""
        return arm.partition(_CROSS)[0] if self.section.code_or_defaults else arm

    @property
    def restarts(self) -> bool:
        """Whether options can be set that a daemon reads when it starts."""
        return all(arm.restart for arm in self.section.arms.values())

    def options_reader(self) -> OptionReader:
        """Return the reader of the options of the two releases."""
        cycles = {name: self.cycle(name) for name in self.section.arms}
        return OptionReader(self.folder / FOLDER, cycles, ceph_command(self.config.cluster))

    def _options(self, arm: str) -> Settings:
        """Return the defaults that an arm has of the other."""
        if self.swapped is None or self.code_of(arm) == arm:
            return {}
        late = self.swapped.at_start[self.code_of(arm)] if self.restarts else {}
        return merged_options(self.swapped.running[self.code_of(arm)], late)

    def _restarted(self, arm: str) -> Tuple[str, ...]:
        """Return the commands that set what a daemon reads when it starts: the same for all four arms."""
        restart = self.section.arms[self.code_of(arm)].restart
        if self.swapped is None or not self.restarts or not restart or not any(self.swapped.at_start.values()):
            return ()
        reader = self.folder / FOLDER
        target = (self.folder / "arms" / f"{arm}.options").resolve()
        ceph = ceph_command(self.config.cluster)
        return (set_line(self.section.through or "", reader / SCRIPT.name, "set", target, ceph), restart)

    def put_back(self, arm: str) -> Tuple[str, ...]:
        """Return the commands that remove the options that a trial of an arm has set before its restart."""
        code = self.code_of(arm)
        return self._restarted(code) if arm != code else ()

    def config_of(self, arm: str) -> Config:
        """Return the checked file of an arm."""
        return load(YamlSource(yaml_text(self.data_of(arm)).encode(), str(self.file_of(arm))))

    def trials(self) -> Iterator[Tuple[PlannedTrial, Trial]]:
        """Yield the trials that are finished, block by block, up to the first block with none."""
        for number in range(1, self.section.blocks + 1):
            trials = [(planned, finished(self.folder_of(planned))) for planned in self.block(number)]
            yield from ((planned, trial) for planned, trial in trials if trial is not None)
            if not any(trial for _, trial in trials):
                return

    def failed_attempts(self) -> Iterator[Tuple[PlannedTrial, Trial]]:
        """Yield the attempts at trials that gave no result, and after which the trial was made again."""
        attempts: Dict[Path, List[Path]] = {}
        for path in sorted(path for name in (REHEARSAL, "trials") for path in (self.folder / name).glob("*.failed-*")):
            attempts.setdefault(path.with_name(path.name.rpartition(".failed-")[0]), []).append(path)
        trials = [PlannedTrial(0, 1, arm) for arm in self.arms]
        trials += [planned for number in range(1, self.section.blocks + 1) for planned in self.block(number)]
        for planned in trials:
            for trial in map(finished, attempts.get(self.folder_of(planned), ())):
                if trial is not None and trial.reason:
                    yield planned, trial

    def begin(self) -> None:
        """Write the files of the arms. Raises CampaignError for a folder of another campaign, OSError."""
        state: Dict[str, Any] = {"version": VERSION, "file": self.config.file, "data": _masked(self.config.data)}
        state.update({"rules": self.decision_rules} if self.decision_rules != BY_RATIOS else {})
        stored_state = stored(self.folder)
        if stored_state:
            _refuse_other(stored_state, self.config, self.folder)
        write_json(self.folder / STATE, state)
        for arm in self.arms:
            write_whole(self.file_of(arm), yaml_text(self.data_of(arm)), mode=0o600)  # its cycles need its secrets
            if self._restarted(arm) and self.swapped:
                code, target = self.code_of(arm), self.folder / "arms" / f"{arm}.options"
                late = self.swapped.at_start[code]
                write_whole(target / "all", option_lines(late, values=False))
                write_whole(target / "set", option_lines(late) if arm != code else "")


def stored(folder: Path) -> Optional[Mapping[str, Any]]:
    """Return the document a campaign's folder was started with; None for a new folder. Raises CampaignError."""
    try:
        data = read_json(folder / STATE)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise CampaignError(f"{folder}: not a folder: give the folder of `campaign run`") from None
    except (OSError, ValueError) as e:
        raise CampaignError(f"{folder / STATE} cannot be read: {e}") from e
    of_this_version = isinstance(data, dict) and data.get("version") == VERSION and data.get("rules", 1) in RULES
    if not of_this_version or not {"data", "file"} <= data.keys():
        raise CampaignError(f"{folder / STATE} was written by another version of cbt-plugins")
    return data


def _masked(data: Any) -> str:
    """Return a file's data as YAML with masked secrets. It may be YAML already: JSON makes texts of keys like 0."""
    return mask_secrets(data if isinstance(data, str) else yaml_text(data))


def _source(state: Mapping[str, Any]) -> YamlSource:
    """Return the file that a campaign was started with."""
    return YamlSource(_masked(state["data"]).encode(), str(state["file"]))


def schedule_of(config: Config, folder: Path) -> Schedule:
    """Return the campaign of a checked file. Raises CampaignError where it has none."""
    section = config.campaign
    if section is None:
        raise CampaignError(f"{config.file}: this file has no section `{KEY}:` (docs/CAMPAIGN.md)")
    config = replace(config, data=with_fault_files(config.data))  # each trial would read its fault files again
    first = section.first
    arms = (first, *(name for name in section.arms if name != first))
    contrasts = tuple(Contrast(name, {name: 1.0, first: -1.0}) for name in arms[1:])
    rules = (stored(folder) or {"rules": BY_DIFFERENCES}).get("rules", BY_RATIOS)
    if not section.code_or_defaults:
        return Schedule(config, section, folder, arms, contrasts, decision_rules=rules)
    old, new = arms
    mixed_old, mixed_new = f"{old}{_CROSS}{new}-defaults", f"{new}{_CROSS}{old}-defaults"
    half = 0.5
    return Schedule(
        config,
        section,
        folder,
        (old, mixed_old, mixed_new, new),
        (
            Contrast("code", {new: half, mixed_new: half, old: -half, mixed_old: -half}),
            Contrast("defaults", {new: half, mixed_old: half, old: -half, mixed_new: -half}),
            Contrast("both", {new: 1.0, old: -1.0}),
        ),
        stored_options(folder / FOLDER),
        rules,
    )


def ceph_command(cluster: Mapping[str, object]) -> str:
    """Return the ceph command of a file's cluster."""
    if cluster.get("ceph") != CEPHADM:
        return installed_program(cluster, "ceph")
    option = f" -c {shlex.quote(conf_file(cluster))}" if cluster.get("conf_file") else ""
    return f"cephadm shell{option} -- ceph"


def _is_same(stored_data: Any, data: Any) -> bool:
    """Return whether data are those that were stored. Former versions masked references to secrets of Kubernetes too.
    """
    if isinstance(stored_data, dict) and isinstance(data, dict):
        return stored_data.keys() == data.keys() and all(_is_same(stored_data[key], data[key]) for key in data)
    return bool(stored_data in (data, MASK))


def _refuse_other(state: Mapping[str, Any], config: Config, folder: Path) -> None:
    """Raise CampaignError where a campaign was started with another file, or other fault files, than this one."""
    given = YamlSource(_masked(config.data).encode(), config.file)
    # a former version kept the paths of fault files
    data, stored_data = (with_fault_files(source.data) for source in (given, _source(state)))
    if not _is_same(stored_data, data):
        raise CampaignError(
            f"{folder} was started with another content of {state.get('file')} or its fault files: a change during "
            "the campaign would make its result worthless; use a new folder, or restore the file"
        )


def schedule_in(folder: Path, config: Optional[Config] = None) -> Schedule:
    """Return the campaign of a folder, from the file that it was started with. Raises CampaignError, ConfigError.

    A file that is given (`config`) must be that one.
    """
    stored_state = stored(folder)
    if stored_state is None:
        raise CampaignError(f"{folder}: this folder has no campaign: {STATE} is missing")
    if config is not None:
        _refuse_other(stored_state, config, folder)
    return schedule_of(load(_source(stored_state)), folder)
