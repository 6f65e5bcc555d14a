"""The part of a playbook that says how the stack is watched: `observe` and `limits`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType

from bisect_agent.model import HttpRequest, Kind, Limits, Observe, PhaseMark, Role, Signature
from bisect_agent.signatures import check_pattern
from bisect_agent.yamlmarks import Field, ScalarNode

DEFAULT_LIMITS: Mapping[Kind, Limits] = MappingProxyType(
    {
        Kind.SERVER: Limits(start=20 * 60, quiet=5 * 60, request=60, stop=10, trials=40, wall=8 * 3600),
        Kind.JOB: Limits(start=3600, quiet=5 * 60, request=60, stop=10, trials=40, wall=8 * 3600),
    }
)
"""Seconds, except `trials`. A job's `start` bounds its whole run."""

_FOREIGN = {Kind.SERVER: ("done",), Kind.JOB: ("ready", "request")}
"""Keys of `observe` that say nothing about that kind."""

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)
_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)

_READY = "ready: {log: ready to roll, http: /health}"
SAME = "same-as-good"
"""What `expect` says where the answer is to be the one that `good` gave."""
_REQUEST = "request: {path: /generate, json: {text: hello}, expect: same-as-good}"
_REQUIRED = {"id": "id: my-crash", "role": "role: root", "pattern": "pattern: 'MyError: .*'"}
SIGNATURE_KEYS = (*_REQUIRED, "fatal", "phase_matters", "topic", "means")
SIGNATURE_EXAMPLE = f"{{{', '.join(_REQUIRED.values())}}}"
_PHASE = {"name": "name: capture", "begin": "begin: 'Capture cuda graph begin'"}
_CLOCKS = ("quiet", "limit")
"""Keys of a phase that are durations."""


def read_observe(top: Field, field: Field | None, kind: Kind, base: Observe | None = None) -> Observe:
    """The value of `observe`; `top` is where it is missed when there is none.

    What it says stands in place of what `base`, a profile's, says of the same; signatures and patterns
    to ignore are added to those of the profile.
    """
    known = ("ready", "request", "done", "signatures", "ignore", "phases")
    keys = {} if field is None else field.section(known, remedy=f"observe: {{{_READY}}}")
    base = base or Observe()
    if kind is Kind.JOB:
        base = base.model_copy(update={"ready_log": None, "ready_http": None, "request": None})
    _check_fits(field or top, keys, kind, base)
    ready = _ready(keys["ready"]) if "ready" in keys else None
    ignored = keys["ignore"].items("ignore: ['a pattern']") if "ignore" in keys else ()
    own = _signatures(keys["signatures"]) if "signatures" in keys else ()
    return Observe(
        ready_log=base.ready_log if ready is None else read_pattern(ready["log"]) if "log" in ready else None,
        ready_http=base.ready_http if ready is None else url_path(ready["http"]) if "http" in ready else None,
        request=_request(keys["request"]) if "request" in keys else base.request,
        done=read_pattern(keys["done"]) if "done" in keys else base.done,
        signatures=(*own, *base.signatures),
        ignore=(*base.ignore, *(read_pattern(item) for item in ignored)),
        phases=_phases(keys["phases"]) if "phases" in keys else base.phases,
    )


def read_limits(field: Field | None, kind: Kind, base: Mapping[str, float] = MappingProxyType({})) -> Limits:
    """The value of `limits` over the defaults: those of `base`, a profile's, over those of that kind."""
    defaults = DEFAULT_LIMITS[kind].model_copy(update=dict(base))
    if field is None:
        return defaults
    keys = field.section(tuple(Limits.model_fields), remedy="limits: {start: 20m}")
    given = {
        name: entry.count("trials: 40") if name == "trials" else _seconds(entry)
        for name, entry in keys.items()
    }
    return defaults.model_copy(update=given)


def read_pattern(field: Field) -> str:
    """An RE2 pattern."""
    pattern = field.text("a pattern in single quotes")
    refuse_bad(pattern, field)
    return pattern


def refuse_bad(pattern: str, field: Field) -> None:
    """Note a problem at `field`, from which `pattern` was made, if it cannot be used."""
    if pattern and (complaint := check_pattern(pattern)):
        found, _, remedy = complaint.rpartition("; ")
        field.refuse(f"the pattern `{field.scalar()}`: {found}", remedy)


def _check_fits(holder: Field, keys: Mapping[str, Field], kind: Kind, base: Observe) -> None:
    """Rule 3: a server's pass needs a ready sign and an answered request; a job has neither."""
    for name in _FOREIGN[kind]:
        if name in keys:
            keys[name].refuse_key(
                f"`observe.{name}` means nothing for a {kind}", "remove it, or change `kind`"
            )
    if kind is Kind.JOB or not holder.is_mapping:
        return
    if "ready" not in keys and not (base.ready_log or base.ready_http):
        found = "a server needs `observe.ready`, by which it is seen to be up"
        holder.refuse_key(found, f"observe: {{{_READY}}}")
    if "request" not in keys and not base.request:
        found = "a server needs `observe.request`: a pass is seen, never assumed, so it must answer something"
        holder.refuse_key(found, f"observe: {{{_REQUEST}}}")


def _ready(field: Field) -> dict[str, Field]:
    keys = field.section(("log", "http"), remedy=_READY)
    if field.is_mapping and not keys:
        field.refuse_key("`observe.ready` names neither `log` nor `http`", _READY)
    return keys


def _request(field: Field) -> HttpRequest:
    keys = field.section(("path", "json", "expect"), required={"path": "path: /generate"}, remedy=_REQUEST)
    expect = keys.get("expect")
    same_as_good = expect is not None and expect.scalar() == SAME
    if (
        expect is not None
        and not same_as_good
        and get_close_matches(expect.scalar() or "", [SAME], cutoff=0.8)
    ):
        expect.refuse(f"`{expect.scalar()}` would be a pattern of the answer", f"did you mean {SAME}?")
    return HttpRequest(
        path=url_path(keys["path"]) if "path" in keys else "",
        body=_body(keys["json"]) if "json" in keys else None,
        expect=read_pattern(expect) if expect is not None and not same_as_good else None,
        same_as_good=same_as_good,
    )


def _body(field: Field) -> str:
    if isinstance(field.node, ScalarNode):
        field.wrong("a mapping or a list", "json: {text: hello}, without quotes around the whole")
    return json.dumps(field.json(), ensure_ascii=False)


def url_path(field: Field) -> str:
    """A path on the server."""
    path = field.text("/health")
    if path and not path.startswith("/"):
        field.refuse(f"`{path}` is not a path on the server", "a path that begins with /, such as /health")
    return path


def _signatures(field: Field) -> tuple[Signature, ...]:
    signatures: dict[str, Signature] = {}
    for item in field.items(f"signatures: [{SIGNATURE_EXAMPLE}]"):
        signature = read_signature(item)
        if signatures.setdefault(signature.id, signature) is not signature:
            item.refuse(f"the signature id `{signature.id}` is used twice", "give each its own id")
    return tuple(signatures.values())


def read_signature(field: Field, known: Sequence[str] = SIGNATURE_KEYS) -> Signature:
    """One signature; `known` are the keys that it may have."""
    keys = field.section(
        known,
        required=_REQUIRED,
        remedy=SIGNATURE_EXAMPLE,
    )
    return Signature(
        id=keys["id"].text(_REQUIRED["id"]) if "id" in keys else field.path,
        role=Role(keys["role"].choice(tuple(Role))) if "role" in keys else Role.ROOT,
        pattern=read_pattern(keys["pattern"]) if "pattern" in keys else "",
        fatal="fatal" in keys and keys["fatal"].truth(),
        phase_matters="phase_matters" in keys and keys["phase_matters"].truth(),
        topic=keys["topic"].text("topic: device-memory") if "topic" in keys else "",
        means=keys["means"].text("means: a sentence") if "means" in keys else "",
    )


def _phases(field: Field) -> tuple[PhaseMark, ...]:
    phases: dict[str, PhaseMark] = {}
    example = f"{{{', '.join(_PHASE.values())}}}"
    for item in field.items(f"phases: [{example}]"):
        keys = item.section((*_PHASE, *_CLOCKS, "progress"), required=_PHASE, remedy=example)
        name = keys["name"].text(_PHASE["name"]) if "name" in keys else item.path
        phase = PhaseMark(
            name=name,
            begin=read_pattern(keys["begin"]) if "begin" in keys else "",
            progress=read_pattern(keys["progress"]) if "progress" in keys else None,
            **{clock: _seconds(keys[clock]) for clock in _CLOCKS if clock in keys},
        )
        if phases.setdefault(name, phase) is not phase:
            item.refuse(f"the phase `{name}` is named twice", "join the patterns with | in one phase")
    return tuple(phases.values())


def _seconds(field: Field) -> float:
    text = field.scalar() or ""
    parts = _DURATION.fullmatch(text)
    if text and parts:
        hours, minutes, seconds = (float(part or 0) for part in parts.groups())
        if total := hours * 3600 + minutes * 60 + seconds:
            return total
    remedy = f"add the unit: {text}s, {text}m or {text}h" if _NUMBER.fullmatch(text) else "90s, 20m or 1h30m"
    field.wrong("a duration with its unit, longer than nothing", remedy)
    return 1.0
