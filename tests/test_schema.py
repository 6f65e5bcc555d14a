"""The schemas are those of what is read and written: each is held to the reader, and to the writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from bisect_agent import playbook, playbook_kinds, playbook_observe, schema
from bisect_agent.model import Limits

ROOT = Path(__file__).parents[1]
SHIPPED = sorted((ROOT / "playbooks").glob("*/playbook.yaml"))
PLAYBOOK = schema.playbook_schema()
EVERYTHING = """\
playbook: 1
title: every key
kind: server
profile: sglang
target: {host: local, ports: [30000], cwd: /tmp, folder: /tmp/x, env: {A: b}, pass: [C], stop: x, code: [/y]}
pass: [D]
launch: exec python3 server.py "$@"
factors:
  a: {env: A1, levels: {on: 1, off: null}, witness: {log: "a is {level}"}, requires: {on: {b: "off"}}}
  b: {flags: {"off": [], "on": [--b]}, witness: {http: /info, contains: "{value}"}, excludes: {c: [y, z]}}
  c: {option: {name: --c, levels: [x, y, z]}, ordered: true}
  d: {file: {path: d.json, levels: {e: {text: x}, f: {from: f.json}, g: null}}}
good: {a: "on"}
bad: {a: "off"}
suspects: [b]
hypotheses: [graph-capture, {family: collectives, with: {p2p: a}}]
observe:
  ready: {log: ready, http: /health}
  request: {path: /generate, json: {text: hello}, expect: same-as-good}
  signatures: [{id: x, role: root, pattern: y, fatal: true, phase_matters: true, topic: hang, means: z}]
  ignore: [noise]
  phases: [{name: load, begin: Load, quiet: 5m, limit: 1h30m, progress: '[0-9]%'}]
causes: all
caches: shared
limits: {start: 20m, quiet: 5m, request: 60s, stop: 10s, trials: 14, wall: 8h}
restore: {command: systemctl start x}
notify: ["${TEAM_URL}"]
"""


def told(text: str) -> list[str]:
    """What the schema says against a playbook."""
    data = YAML(typ="safe", pure=True).load(text)
    return [error.message for error in Draft202012Validator(PLAYBOOK).iter_errors(data)]


@pytest.mark.parametrize("name", ["playbook", "verdict"])
def test_a_schema_is_one(name: str) -> None:
    """Each is a valid JSON schema."""
    Draft202012Validator.check_schema(schema.schemas()[name])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_a_shipped_playbook_follows_its_schema(path: Path) -> None:
    """What runs is what the schema allows."""
    assert [] == told(path.read_text())


def test_every_key_is_allowed() -> None:
    """A playbook that uses all of them is one."""
    assert [] == told(EVERYTHING)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("title: every key", "titel: every key"),
        ("kind: server", "kind: servant"),
        ("profile: sglang", "profile: sgland"),
        ("ports: [30000]", "ports: [0]"),
        ("{start: 20m", "{start: 20"),
        ("causes: all", "causes: both"),
        ("levels: [x, y, z]", "levels: [x]"),
        ("role: root", "role: rot"),
        ('["${TEAM_URL}"]', "[mailto://me]"),
        ("{log: ready, http: /health}", "{log: ready, http: health}"),
    ],
)
def test_a_mistake_is_none_of_them(old: str, new: str) -> None:
    """An editor underlines it."""
    assert EVERYTHING.count(old) == 1
    assert told(EVERYTHING.replace(old, new))


def test_the_schema_has_the_readers_keys() -> None:
    """A key that is read and not described, or described and not read, would be found here."""
    observe = PLAYBOOK["properties"]["observe"]["properties"]
    kinds = [
        set(one["properties"]) for one in PLAYBOOK["properties"]["factors"]["additionalProperties"]["anyOf"]
    ]
    assert set(playbook._KEYS) == set(PLAYBOOK["properties"])
    assert set(Limits.model_fields) == set(PLAYBOOK["properties"]["limits"]["properties"])
    assert set(playbook_observe.SIGNATURE_KEYS) == set(observe["signatures"]["items"]["properties"])
    assert {*playbook_kinds._KINDS, "levels", *playbook_kinds._COMMON} == set().union(*kinds)


def test_a_verdict_follows_its_schema() -> None:
    """The golden verdict is what the published schema says."""
    verdict: dict[str, Any] = json.loads((ROOT / "tests" / "golden" / "verdict.json").read_text())
    assert [] == [e.message for e in Draft202012Validator(schema.verdict_schema()).iter_errors(verdict)]
