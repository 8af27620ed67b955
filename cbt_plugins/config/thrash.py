"""`thrash:` -- faults of several kinds at random times on random targets; the seed repeats all of it."""

from __future__ import annotations

import contextlib
import random
from typing import Annotated, Any, Dict, Iterator, List, Optional, Tuple

from pydantic import AfterValidator, Field, field_validator, model_validator

from cbt_plugins import plan
from cbt_plugins.config.fault import AnyFaultSection, FaultSection, kind_class, usable_label
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, validate
from cbt_plugins.config.units import Duration, Percent, format_duration, share_within

#: a fault is in force for so many times `every`: two are in force at once now and then
_SHORTEST, _LONGEST = 0.4, 1.6
#: faults of one section; more are a typing error
_MANY = 10000


class ThrashSection(Strict):
    """Random faults: the seed draws kind, target and length of each. A fault that a rule refuses is skipped."""

    label: Annotated[str, AfterValidator(usable_label)] = Field(
        "thrash", description="The labels are `LABEL-1`, `LABEL-2` and so on."
    )
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = Field(
        plan.Fault.seed, description="The same seed draws the same faults."
    )
    length: Duration = Field(alias="for", description="How long; then all faults are undone; scaled.")
    every: Duration = Field(60.0, description="Time from one fault to the next; scaled.")
    kinds: List[str] = Field(
        ["stop", "crash", "out"],
        min_length=1,
        description="Kinds to draw from, with their default options: `stop` on an OSD, `stop rgw` on a gateway.",
    )
    accept: List[str] = Field([], description="Safety rules that the faults may break.")
    min_in: Optional[Annotated[Percent, share_within(0.01, 0.99)]] = Field(
        None,
        description="Share of all OSDs that stays in: skip a fault that would leave fewer. OSDs that are down count as "
        "out. `accept` does not change this.",
    )

    @field_validator("accept")
    @classmethod
    def _known_rules(cls, accept: List[str]) -> List[str]:
        return AnyFaultSection._known_rules(accept)

    @model_validator(mode="after")
    def _check_section(self) -> ThrashSection:
        errors = []
        if not 1 <= self.length / self.every <= _MANY:
            text = f"is not 1 to {_MANY} times every ({format_duration(self.every)})"
            errors.append(FieldError(("for",), text))
        for index, kind in enumerate(self.kinds):
            _, kind_errors = validate(FaultSection, self._fault(kind, "x", 1), {})
            errors += [FieldError(("kinds", index), f"{kind}: {text}") for _, text, _ in kind_errors[:1]]
        if errors:
            raise FieldErrors(errors)
        return self

    def _fault(self, text: str, label: str, seed: int) -> Dict[str, Any]:
        """Return a fault of a kind, or of "stop rgw": a kind and the type of the daemons that it hits."""
        kind, _, daemon_type = text.partition(" ")
        fault = {"label": label, "kind": kind, "seed": seed, "accept": list(self.accept)}
        if daemon_type:
            return {**fault, "daemon_number": 1, "daemon_type": daemon_type}
        number = "osd_number"
        with contextlib.suppress(ValueError):  # the check of the kind says what is wrong
            cls = kind_class(kind)
            number = "osd_nodes" if cls.takes == "node" else number if "osd" in cls.daemon_types else "daemon_number"
        return {**fault, number: 1}

    def drawn(self, begin: float) -> Iterator[Tuple[float, float, FaultSection]]:
        """Yield (seconds of its injection, seconds of its undo, fault)."""
        generator = random.Random(self.seed)
        for number in range(int(self.length / self.every)):
            at = begin + number * self.every
            kind, seed = generator.choice(self.kinds), generator.randrange(1 << 31)
            until = min(at + self.every * generator.uniform(_SHORTEST, _LONGEST), begin + self.length)
            fault = FaultSection.model_validate(self._fault(kind, "x", seed))
            # as in a series, the number does not count for the limit of a label
            yield at, round(until, 3), fault.model_copy(update={"label": f"{self.label}-{number + 1}"})
