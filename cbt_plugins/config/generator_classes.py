"""The abilities of load generators: their classes declare them (load/generator.py); no engine is known by name here."""

from __future__ import annotations

from typing import Any, Dict

from cbt_plugins.config import plugins
from cbt_plugins.plan import Phase, Plan

#: seconds of measurements that are worth some seconds for the generators' ceilings
_WORTH_CEILINGS = 300.0


def generator(engine: str) -> Any:
    """Return the class that `engine:` names."""
    return plugins.load(plugins.GENERATORS, engine)


def engine_with(ability: str, value: str = "") -> str:
    """Return the first engine of ours whose class has an attribute that is true, or that contains `value`."""
    for engine in plugins.built_in(plugins.GENERATORS):
        has = getattr(generator(engine), ability)
        if value in has if value else has:
            return engine
    raise KeyError(f"{ability} {value}")


def generators_of(plan: Plan) -> Dict[str, Any]:
    """Return the classes of a plan's engines, by the name of the engine."""
    return {phase.engine: generator(phase.engine) for phase in plan.phases if phase.kind != "wait"}


def has_ceiling(phase: Phase) -> bool:
    """Return whether the generators of a phase can be measured without a cluster."""
    return phase.is_measurement and phase.kind != "wait" and bool(generator(phase.engine).has_ceiling(phase))


def wants_ceiling(plan: Plan) -> bool:
    """Return whether the ceilings of a plan's generators are measured first."""
    phases = [phase for phase in plan.phases if has_ceiling(phase)]
    seconds = sum(phase.duration or (phase.goal.duration if phase.goal else 0) or 0 for phase in phases)
    return bool(phases) and (seconds >= _WORTH_CEILINGS if plan.generator_ceiling is None else plan.generator_ceiling)
