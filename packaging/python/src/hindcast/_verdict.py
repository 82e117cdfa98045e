"""What a replay ends with."""

import dataclasses
from json import loads

from hindcast._command import HindcastError, options, run


class Diverged(HindcastError):
    """A replay that had to be faithful was not. `verdict` has all of it."""

    def __init__(self, verdict):
        first = str(verdict.divergences[0]) if verdict.divergences else "the final state differs"
        super().__init__(f"the replay diverged: {first}", hint=verdict.hint(), exit_code=1)
        self.verdict = verdict


@dataclasses.dataclass(frozen=True)
class Divergence:
    """Where a replay stopped being the recording. `details` has what was expected and what happened, by kind."""

    kind: str
    request: str | None
    transaction: str | None
    details: dict

    def __str__(self):
        at = [f"request {self.request}"] if self.request else []
        at += [f"transaction t{self.transaction}"] if self.transaction else []
        said = ", ".join(f"{name} {value}" for name, value in self.details.items())
        return f"{self.kind} at {', '.join(at) or 'the end'}" + (f" ({said})" if said else "")


@dataclasses.dataclass(frozen=True)
class Verdict:
    """`counts`, `timing`, `final_state` and `remarks` are as `hindcast replay --json` prints them; `json` is all of that."""

    faithful: bool
    from_: str
    to: str
    divergences: list[Divergence]
    divergence_count: int
    counts: dict
    timing: dict
    final_state: dict
    remarks: list[dict]
    json: dict = dataclasses.field(repr=False)

    def __bool__(self):
        return self.faithful

    def require(self):
        """This verdict if it is faithful; else `Diverged`."""
        if not self.faithful:
            raise Diverged(self)
        return self

    def hint(self):
        """What shows the first divergence."""
        first = self.divergences[0] if self.divergences else None
        if first and first.transaction:
            return f"hindcast show t{first.transaction}"
        return f"hindcast show {first.request}" if first and first.request else None

    @classmethod
    def of(cls, json):
        """From what the command printed."""
        taken = ("faithful", "divergence_count", "counts", "timing", "final_state", "remarks")
        return cls(
            **{field: json[field] for field in taken},
            from_=name_of(json["from"]),
            to=name_of(json["to"]),
            divergences=[divergence_of(one) for one in json["divergences"]],
            json=json,
        )


def divergence_of(json):
    details = {name: value for name, value in json.items() if name not in ("kind", "position")}
    position = {what: number if number is None else name_of(number) for what, number in json["position"].items()}
    return Divergence(kind=json["kind"], **position, details=details)


def name_of(number):
    """A request or a transaction as the command takes it: 17, or 2.17 for the second recorder's."""
    recorder, own = number >> 48, number & ((1 << 48) - 1)
    return f"{recorder}.{own}" if recorder else str(own)


def replay(trace, **given):
    """Replays a recording, by the options of `hindcast replay`: `postgres`, `from_`, `to`, `app`, `ignore`, `keep_going`, …

    A divergence is a result: the verdict has it. What could not be run raises `HindcastError`.
    """
    return Verdict.of(loads(run("replay", "--json", "--trace", trace, *options(given), allowed=(0, 1))))
