"""The phase that finds out how the workers of a hybrid load by warp are to be shared among its operations."""

from __future__ import annotations

import dataclasses

from cbt_plugins.plan import CALIBRATE, Phase, Plan

#: seconds: a quarter of the phase it serves, within these
SHORTEST, LONGEST = 5.0, 10.0


def with_calibration(plan: Plan) -> Plan:
    """Put one calibration before the first hybrid phase by warp whose workers are open: one for all to compare."""
    for position, phase in enumerate(plan.phases):
        if phase.kind == "hybrid" and phase.engine == "warp" and phase.workers is None:
            duration = min(LONGEST, max(SHORTEST, (phase.duration or 0.0) / 4))
            calibration = Phase(name=CALIBRATE, kind="hybrid", duration=duration, mix=phase.mix)
            return dataclasses.replace(
                plan, phases=(*plan.phases[:position], calibration, *plan.phases[position:])
            )
    return plan
