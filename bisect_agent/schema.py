"""The JSON schemas of what goes in and what comes out, so that editors complete and tools check.

The playbook's schema says which keys there are and what stands behind them. What only reading can tell
(a level that does not exist, a pattern that is none) `bisect-agent check` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bisect_agent import library, profiles
from bisect_agent.model import Kind, Limits, Role
from bisect_agent.rates import LEAST_ERROR, MOST_ERROR
from bisect_agent.verdict import Verdict

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_TEXT: Schema = {"type": ["string", "number", "boolean"]}
_PATTERN: Schema = {"type": "string", "description": "An RE2 pattern, met by one line at a time."}
_DURATION: Schema = {
    "type": "string",
    "pattern": r"^(\d+(\.\d+)?h)?(\d+(\.\d+)?m)?(\d+(\.\d+)?s)?$",
    "description": "A duration with its unit: 90s, 20m, 1h30m.",
}
_ADDRESS: Schema = {"type": "string", "pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$"}
_PATH: Schema = {"type": "string", "pattern": "^/", "description": "A path on the server, such as /health."}
_FACTOR_NAME = r"^\w[\w.+-]{0,63}$"
_LEVEL_NAME = r"^[^\s=,/]{1,64}$"


def schemas() -> Mapping[str, Schema]:
    """The schemas by the name of what they describe."""
    return {"playbook": playbook_schema(), "verdict": verdict_schema()}


def verdict_schema() -> Schema:
    """The schema of verdict.json."""
    return {"$schema": DIALECT, "title": "bisect-agent verdict", **Verdict.model_json_schema()}


def playbook_schema() -> Schema:
    """The schema of a playbook."""
    return {
        "$schema": DIALECT,
        "title": "bisect-agent playbook",
        **_mapping(
            {
                "playbook": {"enum": [1, "1"], "description": "The version of the format."},
                "title": _said(_TEXT, "What this is about."),
                "kind": _said(
                    _choice(*Kind), "A server is to become ready and answer; a job is to end well."
                ),
                "profile": _said(_choice(*profiles.names()), "The stack: how it is observed and asked."),
                "target": _target(),
                "targets": _said(
                    _list(_target(), 1), "Several, on which trials run at once; the first is restored."
                ),
                "pass": _said(_list(_TEXT), "Names of variables that every attempt takes from ours."),
                "secrets": _said(_list(_TEXT), "Names of variables of ours whose values are never shown."),
                "launch": _said({"type": "string"}, 'The launch script, run by bash; flags arrive as "$@".'),
                "launch_file": _said({"type": "string"}, "The launch script's file, beside the playbook."),
                "factors": _said(_named(_FACTOR_NAME, _factor(), 1), "What can be set, by name."),
                "good": _said(
                    _named(_FACTOR_NAME, _TEXT), "What the configuration that works has otherwise."
                ),
                "bad": _said(_named(_FACTOR_NAME, _TEXT), "What the configuration that fails has otherwise."),
                "suspects": _said(_list(_TEXT), "Which factors equal in both are tried; default: all."),
                "hypotheses": _said(_list(_family()), "Families of claims about the cause."),
                "observe": _observe(),
                "causes": {"enum": [1, "1", "all"], "description": "Stop at the first cause, or find all."},
                "confidence": _said(
                    _mapping(
                        {"error": {"type": "number", "minimum": LEAST_ERROR, "maximum": MOST_ERROR}}, "error"
                    ),
                    "The failure may be flaky; how often a verdict may be wrong.",
                ),
                "caches": _said(
                    _choice("fresh", "shared"), "Whether every attempt begins with empty caches."
                ),
                "limits": _limits(),
                "restore": {
                    "description": "What is left running in the end.",
                    "anyOf": [_choice("good", "none"), _mapping({"command": {"type": "string"}}, "command")],
                },
                "notify": _said(
                    {"anyOf": [_ADDRESS, _list(_ADDRESS)]},
                    "Who is told of the end: addresses for apprise, each as ${NAME}, taken from ours.",
                ),
            },
            "playbook",
            "factors",
        ),
    }


def _target() -> Schema:
    return _mapping(
        {
            "host": _said({"type": "string"}, "Where the stack runs: local, or ssh://[user@]host[:port]."),
            "ports": _said(
                _list({"type": "integer", "minimum": 1, "maximum": 65535}),
                "What it listens on; health and the request go to the first.",
            ),
            "cwd": _said({"type": "string"}, "The folder it runs in; default: the playbook's."),
            "folder": _said({"type": "string"}, "Where our files go; default: ~/.bisect-agent/RUN."),
            "env": _said(_named(None, _TEXT), "Variables of every attempt; ${NAME} is taken from ours."),
            "pass": _said(_list(_TEXT), "Names of variables that every attempt takes from ours."),
            "secrets": _said(_list(_TEXT), "Names of variables of ours whose values are never shown."),
            "stop": _said({"type": "string"}, "A command that ends the owners' own server, once."),
            "code": _said(_list({"type": "string"}), "Folders and files of code that must stay as they are."),
        }
    )


def _factor() -> Schema:
    value = {"type": ["string", "number", "boolean", "null"]}
    levels = _named(_LEVEL_NAME, value, 2)
    bound = {"anyOf": [_TEXT, _list(_TEXT)]}
    bounds = _named(None, {"anyOf": [bound, _named(_FACTOR_NAME, bound)]})
    text = _mapping({"text": _TEXT, "from": {"type": "string"}})
    common = {
        "witness": {
            "description": "What shows that a level took effect; {level} or {value} is filled in.",
            "anyOf": [
                _mapping({"log": _PATTERN}, "log"),
                _mapping({"http": _PATH, "contains": _TEXT}, "http", "contains"),
            ],
        },
        "ordered": _said({"type": "boolean"}, "The levels are in an order, such as versions: bisected."),
        "requires": _said(bounds, "Levels of other factors that a level must go with."),
        "excludes": _said(bounds, "Levels of other factors that a level cannot go with."),
    }
    option = _mapping(
        {"name": {"type": "string"}, "levels": {"anyOf": [_list(_TEXT, 2), levels]}}, "name", "levels"
    )
    file = _mapping(
        {"path": {"type": "string"}, "levels": _named(_LEVEL_NAME, {"anyOf": [text, {"type": "null"}]}, 2)},
        "path",
        "levels",
    )
    kinds: list[tuple[Schema, str]] = [
        ({"env": {"type": "string"}, "levels": levels}, "An environment variable; null unsets it."),
        ({"flags": _named(_LEVEL_NAME, _list(_TEXT), 2)}, 'Arguments, given as part of "$@".'),
        ({"option": option}, "A command-line option with a value; null leaves it out."),
        ({"file": file}, "A file that is written before the start; null removes it."),
        ({"script": _named(_LEVEL_NAME, {"type": "string"}, 2)}, "The launch script itself."),
    ]
    return {"anyOf": [_said(_mapping({**own, **common}, *own), text) for own, text in kinds]}


def _family() -> Schema:
    name = _choice(*library.families())
    return {"anyOf": [name, _mapping({"family": name, "with": _named(None, _TEXT)}, "family")]}


def _observe() -> Schema:
    request = {
        "path": _PATH,
        "json": {"type": ["object", "array"]},
        "expect": _said({"type": "string"}, "A pattern of the answer, or same-as-good."),
    }
    signature = {
        "id": {"type": "string"},
        "role": _choice(*Role),
        "pattern": _PATTERN,
        "fatal": _said({"type": "boolean"}, "Such a line ends the attempt."),
        "phase_matters": _said({"type": "boolean"}, "In another phase it is another failure."),
        "topic": _said({"type": "string"}, "The class of failure it tells of."),
        "means": {"type": "string"},
    }
    phase = {
        "name": {"type": "string"},
        "begin": _PATTERN,
        "quiet": _DURATION,
        "limit": _DURATION,
        "progress": _PATTERN,
    }
    return _said(
        _mapping(
            {
                "ready": _said(_mapping({"log": _PATTERN, "http": _PATH}), "What says that a server is up."),
                "request": _said(_mapping(request, "path"), "The one request that must be answered."),
                "done": _said(_PATTERN, "A line without which a job has not done its work."),
                "signatures": _list(_mapping(signature, "id", "role", "pattern")),
                "ignore": _said(_list(_PATTERN), "Lines that mean nothing."),
                "phases": _said(_list(_mapping(phase, "name", "begin")), "The parts of the start, in order."),
            }
        ),
        "How the stack's state is read, beside or instead of the profile's ways.",
    )


def _limits() -> Schema:
    count = _said({"type": "integer", "minimum": 1}, "So many attempts at most.")
    return _mapping({name: count if name == "trials" else _DURATION for name in Limits.model_fields})


def _mapping(keys: Mapping[str, Schema], *required: str) -> Schema:
    """A mapping whose keys are fixed."""
    made: Schema = {"type": "object", "properties": dict(keys), "additionalProperties": False}
    return {**made, "required": list(required)} if required else made


def _named(name: str | None, value: Schema, least: int = 0) -> Schema:
    """A mapping from names that the user chooses."""
    made: Schema = {"type": "object", "additionalProperties": value}
    if name:
        made["propertyNames"] = {"pattern": name}
    return {**made, "minProperties": least} if least else made


def _list(item: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": item, **({"minItems": least} if least else {})}


def _choice(*words: str) -> Schema:
    return {"enum": [str(word) for word in words]}


def _said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}
