"""The words of the product as types: what is varied, run, seen, and concluded.

Every type is frozen and refuses unknown fields, so that what the journal holds is exactly what the
code can say. Nothing here reads a file, a clock or the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, RootModel, model_validator


class Frozen(BaseModel):
    """A value: immutable, comparable, with no room for fields nobody declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# --- what is varied ---------------------------------------------------------------------------------


class Setting(Frozen):
    """One factor at one level."""

    factor: str
    level: str

    def __str__(self) -> str:
        return f"{self.factor}={self.level}"


class Configuration(RootModel[Mapping[str, str]]):
    """A level for every factor."""

    model_config = ConfigDict(frozen=True)

    def __hash__(self) -> int:
        return hash(frozenset(self.root.items()))

    def __getitem__(self, factor: str) -> str:
        return self.root[factor]

    def replace(self, settings: Iterable[Setting]) -> Configuration:
        """This configuration with some factors set otherwise."""
        return Configuration({**self.root, **{s.factor: s.level for s in settings}})

    def settings(self) -> tuple[Setting, ...]:
        """Every factor with its level, in the playbook's order."""
        return tuple(Setting(factor=f, level=v) for f, v in self.root.items())

    def differs(self, other: Configuration) -> tuple[Setting, ...]:
        """The settings of this configuration that `other` has otherwise."""
        return tuple(Setting(factor=f, level=v) for f, v in self.root.items() if other[f] != v)


class LogWitness(Frozen):
    """Proof in the log that a level took effect: an RE2 pattern with `{level}` or `{value}` in it."""

    kind: Literal["log"] = "log"
    log: str


class HttpWitness(Frozen):
    """Proof in what the server answers to `GET http`: a text with `{level}` or `{value}` in it."""

    kind: Literal["http"] = "http"
    http: str
    contains: str


class ArgumentWitness(Frozen):
    """Proof in the stack's own report of its effective arguments: an RE2 pattern for each level.

    A level without a pattern cannot be seen there, and is not contradicted by what is seen of the others.
    `denied` are patterns of lines that show that a level did nothing, whatever the report says.
    """

    kind: Literal["arguments"] = "arguments"
    patterns: Mapping[str, str]
    denied: Mapping[str, str] = Field(default_factory=dict)


Witness = Annotated[LogWitness | HttpWitness | ArgumentWitness, Field(discriminator="kind")]

Bounds = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Of some of a factor's levels: for each other factor named, the levels of it that are meant."""


class _Factor(Frozen):
    """What factors of all kinds have.

    `ordered` says that the levels are in an order (versions), along which the failure begins once.
    `requires`: with that level, the other factor must be at one of these levels; `excludes`: at none.
    """

    name: str
    witness: Witness | None = None
    ordered: bool = False
    requires: Bounds = Field(default_factory=dict)
    excludes: Bounds = Field(default_factory=dict)

    def allows(self, configuration: Configuration) -> bool:
        """Whether this factor's level goes with the levels of the others."""
        level = configuration[self.name]
        required, excluded = self.requires.get(level, {}), self.excludes.get(level, {})
        return all(configuration[other] in levels for other, levels in required.items()) and not any(
            configuration[other] in levels for other, levels in excluded.items()
        )


class EnvFactor(_Factor):
    """An environment variable; a level's value `None` means that it is unset."""

    kind: Literal["env"] = "env"
    env: str
    levels: Mapping[str, str | None]

    def value(self, level: str) -> str:
        """What `{value}` stands for in a witness."""
        return self.levels[level] or ""


class FlagsFactor(_Factor):
    """Command-line arguments, given to the launch script as part of `"$@"`."""

    kind: Literal["flags"] = "flags"
    levels: Mapping[str, tuple[str, ...]]

    def value(self, level: str) -> str:
        """What `{value}` stands for in a witness."""
        return " ".join(self.levels[level])


class OptionFactor(_Factor):
    """A command-line option with a value, part of `"$@"`; a level's value `None`: it is not given."""

    kind: Literal["option"] = "option"
    option: str
    levels: Mapping[str, str | None]

    def value(self, level: str) -> str:
        """What `{value}` stands for in a witness."""
        return self.levels[level] or ""


class FileFactor(_Factor):
    """A file of the target that is written before the start; a level's text `None`: there is none.

    `path` is absolute, or seen from the folder that the launch script runs in.
    """

    kind: Literal["file"] = "file"
    path: str
    levels: Mapping[str, str | None]

    def value(self, level: str) -> str:
        """What `{value}` stands for in a witness: the level's name, since a file's text is no value."""
        return level


class ScriptFactor(_Factor):
    """The launch script itself; a level's value is its text."""

    kind: Literal["script"] = "script"
    levels: Mapping[str, str]

    def value(self, level: str) -> str:
        """What `{value}` stands for in a witness: the level's name, since a script's text is no value."""
        return level


Factor = Annotated[
    EnvFactor | FlagsFactor | OptionFactor | FileFactor | ScriptFactor, Field(discriminator="kind")
]


# --- what is known before a run ---------------------------------------------------------------------


class Role(StrEnum):
    """What a log line that matches a signature means."""

    ROOT = "root"
    SYMPTOM = "symptom"
    WRAPPER = "wrapper"
    CASCADE = "cascade"
    HINT = "hint"
    PROGRESS = "progress"
    READY = "ready"
    INFRA = "infra"
    INVALID = "invalid"


class Signature(Frozen):
    """A named pattern (RE2, matched against one line at a time).

    `fatal` ends the attempt when the line is seen; `phase_matters` says that the same pattern in
    another phase is another failure (out of memory, hang). `topic` is the class of failure that it
    tells of, empty for one that tells of none.
    """

    id: str
    role: Role
    pattern: str
    fatal: bool = False
    phase_matters: bool = False
    topic: str = ""
    means: str = ""


class PhaseMark(Frozen):
    """A phase of the start and the log pattern that begins it.

    `quiet` is how many seconds may pass in it without progress, None: `limits.quiet`; `limit` how many
    it may last at all, None: until `limits.start` is over. Progress is any line of the log; but where
    the phase names a pattern for it, `progress`, only such a line (or a signature of that role) is, and
    it starts the clock of `limit` again too.
    """

    name: str
    begin: str
    quiet: float | None = None
    limit: float | None = None
    progress: str | None = None


class HttpRequest(Frozen):
    """One request to 127.0.0.1 on the target. `body` is sent as JSON when given."""

    path: str
    body: str | None = None
    expect: str | None = None
    same_as_good: bool = False


class Observe(Frozen):
    """How the stack's state is read: what is ready, what is asked, what the log's lines mean."""

    ready_log: str | None = None
    ready_http: str | None = None
    request: HttpRequest | None = None
    done: str | None = None
    signatures: tuple[Signature, ...] = ()
    ignore: tuple[str, ...] = ()
    phases: tuple[PhaseMark, ...] = ()


class Hypothesis(Frozen):
    """A claim about causes, in terms of the playbook's own factors.

    True of a cause that holds every factor of `involves` and none of `excludes`. `missing` names
    roles of the family that no factor of the playbook plays: such a claim stays undecided. `topics` are
    the classes of failure that it speaks of, empty where it speaks of any.
    `contradicted_by` are RE2 patterns; one of them in the log of `bad` contradicts the claim.
    """

    id: str
    family: str
    claim: str
    involves: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    contradicted_by: tuple[str, ...] = ()
    because: str = ""
    advice: str = ""


class Limits(Frozen):
    """Seconds, except `trials`, which counts attempts."""

    start: float
    quiet: float
    request: float
    stop: float
    trials: int
    wall: float
    lease: float = 1800.0


class Target(Frozen):
    """Where the stack runs.

    `env` are values set for every attempt, `passed` names taken from ours, `secrets` names of ours whose
    values are shown nowhere; `stop` is the command that ends the server which its owners left running there.
    `code` are paths that are to stay as they are.
    """

    host: str
    ports: tuple[int, ...] = ()
    cwd: str
    folder: str | None = None
    env: Mapping[str, str] = Field(default_factory=dict)
    passed: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    stop: str | None = None
    code: tuple[str, ...] = Field(default=(), exclude_if=lambda code: not code)


FIRST = 1
"""The number of a run's first target; the further ones follow in their order."""


class Kind(StrEnum):
    """What the launch script is."""

    SERVER = "server"
    JOB = "job"


class Package(Frozen):
    """A Python package of a stack; environment names that begin with one of `prefixes` are its own."""

    name: str
    prefixes: tuple[str, ...] = ()


class Shown(Frozen):
    """How a stack's log shows the arguments in effect: each as `argument`, on a line that matches `line`.

    Both are RE2; in `argument`, `{name}` and `{value}` stand for an argument's name and value. `never` are
    lines that are not written where an option is in effect, by the option: the report only repeats it.
    """

    line: str
    argument: str
    never: Mapping[str, str] = Field(default_factory=dict)


class Profile(Frozen):
    """What is known of a stack beside how it is observed.

    `caches` are the variables that name its cache folders, each with the folder's name below the
    attempt's own. `leaves` are patterns of files that a killed stack leaves behind.
    `help` says that the launch script with `--help` only prints what it knows.
    `retired` are options and variables of other versions, each with what to write instead.
    """

    name: str
    packages: tuple[Package, ...] = ()
    shown: Shown | None = None
    help: bool = False
    caches: Mapping[str, str] = Field(default_factory=dict)
    leaves: tuple[str, ...] = Field(default=(), exclude_if=lambda leaves: not leaves)
    retired: Mapping[str, str] = Field(default_factory=dict)


class Note(Frozen):
    """Something that is known before the first start; `wrong` says that the program will refuse it."""

    about: str
    text: str
    remedy: str = ""
    wrong: bool = False

    def __str__(self) -> str:
        return f"{self.about}: {self.text}" + (f"; try: {self.remedy}" if self.remedy else "")


class Asked(Frozen):
    """What a stack says of itself: where that was found, and what it means for the playbook.

    `reads` are variables which the playbook sets and that the installed version reads.
    """

    sources: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    reads: tuple[str, ...] = ()


Cached = Literal["fresh", "shared"]
"""Whether every attempt begins with empty caches, or with what the ones before it have left there."""


class Command(Frozen):
    """A shell command of the playbook's, run in the folder of the launch script."""

    command: str


class Playbook(Frozen):
    """A playbook with everything resolved: no default, file or family is looked up after this.

    `caches` are variables that name cache folders, each with a folder's name: every attempt gets empty
    ones of its own. `cached` says whether that is so, None in a run that was begun before this was recorded.
    `leaves` are patterns of files that an attempt may leave behind. `every_cause` says that the search goes
    on after the first cause. `error` says that the failure may be flaky, and how often a verdict may be
    wrong; None where every failure shows itself. `notify` are the names of variables of ours whose values
    say who is told of the end. `others` are the further targets, on which trials run beside the first.
    """

    title: str
    kind: Kind
    target: Target
    others: tuple[Target, ...] = Field(default=(), exclude_if=lambda others: not others)
    launch: str
    factors: tuple[Factor, ...]
    good: Configuration
    bad: Configuration
    suspects: tuple[str, ...]
    observe: Observe
    signatures: tuple[Signature, ...]
    hypotheses: tuple[Hypothesis, ...]
    limits: Limits
    restore: Literal["good", "none"] | Command
    profile: Profile | None = None
    caches: Mapping[str, str] = Field(default_factory=dict)
    cached: Cached | None = Field(default=None, exclude_if=lambda cached: cached is None)
    leaves: tuple[str, ...] = Field(default=(), exclude_if=lambda leaves: not leaves)
    every_cause: bool = False
    error: float | None = Field(default=None, exclude_if=lambda error: error is None)
    notify: tuple[str, ...] = Field(default=(), exclude_if=lambda names: not names)

    @property
    def targets(self) -> Mapping[int, Target]:
        """All targets by their numbers."""
        return dict(enumerate((self.target, *self.others), FIRST))

    def at(self, number: int) -> Playbook:
        """The playbook as it is on one of its targets. Nothing is left running on a further one."""
        if number == FIRST:
            return self
        return self.model_copy(update={"target": self.targets[number], "others": (), "restore": "none"})

    def possible(self, configuration: Configuration) -> bool:
        """Whether no factor's `requires` or `excludes` forbids a configuration."""
        bound = (factor for factor in self.factors if factor.requires or factor.excludes)
        return all(factor.allows(configuration) for factor in bound)

    def signature(self, name: str) -> Signature:
        """The signature of that id; the playbook's own stands for a shipped one."""
        return next(s for s in (*self.observe.signatures, *self.signatures) if s.id == name)

    def factor(self, name: str) -> Factor:
        """The factor of that name."""
        return next(f for f in self.factors if f.name == name)


# --- what is run ------------------------------------------------------------------------------------


class Single(Frozen):
    """The one change of a trial that may accuse."""

    kind: Literal["single"] = "single"
    setting: Setting

    def settings(self) -> tuple[Setting, ...]:
        """The settings changed: one."""
        return (self.setting,)


class Group(Frozen):
    """Several changes at once: steers the search, never accuses."""

    kind: Literal["group"] = "group"
    group: tuple[Setting, ...]

    def settings(self) -> tuple[Setting, ...]:
        """The settings changed."""
        return self.group


Change = Annotated[Single | Group, Field(discriminator="kind")]


class Trial(Frozen):
    """A planned run of one configuration.

    A control (`good`, `bad`, the restore of `good`) has no parent and no change; every other trial has
    both.
    """

    id: str
    control: Literal["good", "bad", "restore"] | None = None
    parent: str | None = None
    change: Change | None = None
    configuration: Configuration
    replicate: int = 1

    @model_validator(mode="after")
    def _is_control_or_change(self) -> Self:
        if (self.control is None) != (self.parent is not None and self.change is not None):
            raise ValueError("a trial is a control, or it has a parent and a change")
        return self

    @property
    def label(self) -> str:
        """What a person calls it: `good`, `bad`, `restore`, or the change."""
        if self.change is None:
            return str(self.control)
        return ",".join(str(s) for s in self.change.settings())


# --- what is around it ------------------------------------------------------------------------------


class Fingerprint(Frozen):
    """What a target is: trials can be compared only while all of it stays.

    `parts` are by name; `folders` are those in which the stack's Python looks for packages. `unread` says
    of a part why it is not known.
    """

    parts: Mapping[str, str] = Field(default_factory=dict)
    folders: tuple[str, ...] = ()
    unread: Mapping[str, str] = Field(default_factory=dict)


class Before(Frozen):
    """What an attempt's surroundings were right before its start, for what may change in every attempt.

    `heard` is the number of the kernel's last record, None where its log is closed to us. `faults` are the
    uncorrected memory errors, `memory` the MiB in use, of each GPU by its uuid. `others` says that
    processes of other attempts lived.
    """

    boot: str
    heard: int | None = None
    faults: Mapping[str, int] = Field(default_factory=dict)
    memory: Mapping[str, int] = Field(default_factory=dict)
    others: bool = False


# --- what is seen -----------------------------------------------------------------------------------


class MatchKind(StrEnum):
    """What a matched pattern belongs to."""

    SIGNATURE = "signature"
    READY = "ready"
    DONE = "done"
    PHASE = "phase"
    WITNESS = "witness"
    DENIAL = "denial"
    CONTRADICTION = "contradiction"
    PROGRESS = "progress"


class Match(Frozen):
    """A pattern met in a log. `id`: signature id, phase name, `factor=level`, or hypothesis id.

    `line` counts from 1; `offset` is the byte offset of the line's start; `time` is the writer's own
    stamp in seconds since the epoch (as UTC), None where the line and its traceback have none.
    """

    kind: MatchKind
    id: str
    line: int
    offset: int
    text: str
    time: float | None = None
    rank: str | None = None


class Raised(Frozen):
    """The first exception printed of a chain: its last line, and the frame it came from.

    `line` and `offset` are of the exception's line; `begins` is the offset of the chain's first
    line, `ends` the offset after the chain's last line seen. `fingerprint` is the exception's line
    with numbers and paths masked, and its own frame's file name and function.
    """

    exception: str
    frame: str
    fingerprint: str
    line: int
    offset: int
    begins: int
    ends: int
    time: float | None = None
    rank: str | None = None


class LastLine(Frozen):
    """The last line of a log that is not empty: what was said before silence or the end."""

    line: int
    offset: int
    text: str


class Reading(Frozen):
    """All that one attempt's log says, up to the byte where our stop began."""

    size: int
    lines: int
    last: LastLine | None = None
    matches: tuple[Match, ...] = ()
    raised: tuple[Raised, ...] = ()


class Process(Frozen):
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    start: int
    boot: str
    name: str = ""


class Exit(Frozen):
    """How the launch script's own process ended: exactly one of the two is set."""

    code: int | None = None
    signal: int | None = None


class Piece(Frozen):
    """A part of a log in a copy with holes: where it stands in the log, and where in the copy.

    Lines count from 1. `inside` says that it begins within a line, whose own beginning is in a piece
    before it.
    """

    offset: int
    size: int
    line: int
    newlines: int
    copy_offset: int
    copy_line: int
    inside: bool = False

    @property
    def end(self) -> int:
        """The offset, in the log, of the byte after it."""
        return self.offset + self.size


class Hole(Frozen):
    """What a copy does not hold: the place in the log, and how many bytes and newlines are missing."""

    offset: int
    size: int
    newlines: int


class LogCopy(Frozen):
    """Our copy of an attempt's log. `sha256` is of the copy, `original` of the bytes on the target.

    `size` is the log's. A long log's copy has holes: `pieces` are what it holds, none where it is whole.
    `bare` counts the lines that were noted when there was no room left for what surrounds them.
    """

    path: str
    size: int
    sha256: str
    original: str
    pieces: tuple[Piece, ...] = Field(default=(), exclude_if=lambda pieces: not pieces)
    bare: int = Field(default=0, exclude_if=lambda bare: not bare)

    def holes(self) -> tuple[Hole, ...]:
        """What is missing, in order."""
        return tuple(
            Hole(
                offset=before.end,
                size=after.offset - before.end,
                newlines=after.line - before.line - before.newlines,
            )
            for before, after in pairwise(self.pieces)
        )

    def line_of(self, offset: int, line: int) -> int | None:
        """The number, in the copy, of a line of the log; None where that line is in a hole."""
        if not self.pieces:
            return line
        holding = (p for p in self.pieces if p.offset <= offset < p.end)
        return next((p.copy_line + line - p.line for p in holding), None)


class FileLine(Frozen):
    """A line of a file: its number from 1, the byte offset of its start, its text."""

    line: int
    offset: int
    text: str


class Exhibit(Frozen):
    """A file beside an attempt's log, with the lines of it that show something; `sha256` is the file's."""

    path: str
    sha256: str
    lines: tuple[FileLine, ...] = ()


class Stacks(Frozen):
    """Two looks at what the processes of an attempt did, when its time was over.

    `seconds` lie between the two. `moved` says what had moved, and is empty where nothing had.
    `missing` says why a look could not be had; then `moved` says nothing.
    """

    looks: tuple[Exhibit, ...] = ()
    seconds: float = 0.0
    moved: str = ""
    missing: str = ""


class Death(Frozen):
    """A process of the attempt, not the script's own, that a signal ended; `time` is when it was noticed."""

    process: Process
    signal: int
    time: float


class OutOfMemory(Frozen):
    """What the kernel said of its out-of-memory kills while an attempt ran; None where it cannot be read.

    `counted` is by how much the counter of the attempt's memory cgroup rose, `logged` how many lines of
    the kernel's log name a process of the attempt, `file` where both are kept.
    """

    counted: int | None = None
    logged: int | None = None
    file: Exhibit | None = None

    @property
    def killed(self) -> bool:
        """Whether a process was killed for want of memory."""
        return bool(self.counted or self.logged)

    @property
    def readable(self) -> bool:
        """Whether the kernel could be asked."""
        return self.counted is not None or self.logged is not None


class Kept(Frozen):
    """A file that an attempt may have left behind, and why it was not removed."""

    path: str
    why: str


class Aftermath(Frozen):
    """What an attempt left around it, as far as there is something to say of it.

    `changed` shows what makes it another environment than before. `heard` are the kernel's lines of faults
    of a GPU that the stack may have brought about itself. `memory` says what of the GPUs' memory did not
    come back, `unsure` what may be another attempt's. `removed` and `kept` are files that were left; `more`
    counts those kept and not named.
    """

    changed: Exhibit | None = None
    heard: tuple[str, ...] = ()
    memory: str = ""
    unsure: str = ""
    removed: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    more: int = 0


class HttpAnswer(Frozen):
    """What came back: a status and a body, or the error that says why nothing did."""

    status: int | None = None
    body: str = ""
    error: str = ""


class Serving(Frozen):
    """What was seen of a server after its ready line.

    `witnesses` are what it answered where a factor's witness is: by the path that was asked.
    """

    listener: Literal["ours", "foreign", "nobody"]
    health: HttpAnswer | None = None
    request: HttpAnswer | None = None
    witnesses: Mapping[str, HttpAnswer] = Field(
        default_factory=dict, exclude_if=lambda witnesses: not witnesses
    )


class Why(StrEnum):
    """Why an attempt was brought to its end."""

    FATAL = "a fatal line was seen"
    SERVED = "it was ready and answered"
    EXITED = "the launch script ended"
    SILENT = "the log stood still for limits.quiet"
    STALLED = "the log told of no progress for the phase's quiet"
    LIMIT = "the phase's limit was over"
    OVERDUE = "limits.start was over"
    INVALID = "the attempt cannot count"
    TROUBLE = "our side failed"
    CANCELLED = "the run was interrupted"


class Reason(StrEnum):
    """Why an attempt says nothing about its configuration."""

    SCRIPT = "the script is not on the target as written"
    NOT_LAUNCHED = "the launch did not start"
    LOG_MISSING = "the log does not exist"
    LOG_STALE = "the log is not this attempt's"
    LOG_DAMAGED = "the log was cut or replaced while read"
    UNREACHABLE = "the target could not be reached"
    UNUSABLE = "the target could not be used"
    SUPERVISOR_LOST = "the supervisor died"
    DISK = "the disk is full"
    PORT_BUSY = "a port was taken by another process"
    INFRA = "the infrastructure failed first"
    UNTESTABLE = "the script says that this cannot be tested"
    NOT_APPLIED = "a level was seen not to take effect"
    INVALID = "the log says that this run is not valid"
    DIRTY = "something of the attempt did not die"
    ENVIRONMENT = "the environment changed"
    INTERRUPTED = "the run was interrupted"
    GUARDED = "the guardian on the target has taken over"
    UNGUARDED = "the guardian on the target is gone"


RETRIED = frozenset(Reason) - {Reason.NOT_APPLIED, Reason.INVALID}
"""Reasons that are ours or passing: the same trial gets another attempt, now or when the run is resumed."""
UNCOUNTED = frozenset({Reason.INTERRUPTED, Reason.DIRTY, Reason.GUARDED})
"""Reasons that end the run: the attempt does not count against its trial when the run is resumed."""


class Trouble(Frozen):
    """Something of ours that failed, and what was seen of it."""

    reason: Reason
    detail: str


class Takeover(Frozen):
    """What the guardian on the target did when the lease of the agent with this fencing number had ended.

    `time` is in seconds since the epoch there. `ended` are the folders of the attempts that it ended,
    `good` that of the server it left running. `restored` is None where there was nothing to restore, or it
    is at work; `wrong` says what went wrong. `done`: it is not at work any more.
    """

    fence: int
    why: str
    time: float
    ended: tuple[str, ...] = ()
    good: str | None = None
    restored: bool | None = None
    wrong: str = ""
    done: bool = True


class Observation(Frozen):
    """What was seen in one attempt. It holds no opinion.

    `exit` is how the script's own process ended by itself, None where we ended it. `quiet` and `idle`
    are in seconds: how long the log had stood still, and how long it had told of no progress. `killed`
    counts the processes that took a SIGKILL of ours; `deaths` are those seen to be ended by a signal
    before our stop began, first in time. `aftermath` is None where there is nothing to say of it.
    """

    reading: Reading = Reading(size=0, lines=0)
    log: LogCopy | None = None
    why: Why
    phase: str = ""
    quiet: float = 0.0
    idle: float = 0.0
    stacks: Stacks | None = None
    serving: Serving | None = None
    exit: Exit | None = None
    deaths: tuple[Death, ...] = ()
    memory: OutOfMemory | None = None
    stopped: bool = False
    killed: int = 0
    left: tuple[Process, ...] = ()
    busy_ports: tuple[int, ...] = ()
    trouble: Trouble | None = None
    aftermath: Aftermath | None = Field(default=None, exclude_if=lambda aftermath: aftermath is None)


# --- what is made of it -----------------------------------------------------------------------------


class Evidence(Frozen):
    """Where a sentence comes from: a line of a file of the run folder.

    Where that file is a copy with holes, `line` and `offset` are those of the whole log, and `copy_line`
    is the line's number in the copy.
    """

    path: str
    line: int
    offset: int
    text: str
    time: float | None = None
    rank: str | None = None
    sha256: str
    copy_line: int | None = Field(default=None, exclude_if=lambda line: line is None)


class SymptomKind(StrEnum):
    """The class of a failure; two failures of different classes are never the same one."""

    SIGNATURE = "signature"
    EXCEPTION = "exception"
    EXIT = "exit"
    SIGNAL = "signal"
    HANG = "hang"
    ANSWER = "answer"


Order = Literal["shown", "not shown", "one rank"]
"""Whether the stamps show which rank failed first."""


class Symptom(Frozen):
    """What failed. `first_rank` is None where the stamps do not show which rank failed first."""

    kind: SymptomKind
    id: str
    text: str
    phase: str
    phase_matters: bool = False
    first_rank: str | None = None
    order: Order = "one rank"
    evidence: tuple[Evidence, ...] = ()

    def same_as(self, other: Symptom) -> bool:
        """Whether the two are one failure (rule 5)."""
        return (self.kind, self.id) == (other.kind, other.id) and (
            not self.phase_matters or self.phase == other.phase
        )


class Passed(Frozen):
    """It was seen to work."""

    kind: Literal["passed"] = "passed"
    evidence: tuple[Evidence, ...] = ()
    answer: str = ""


class Failed(Frozen):
    """The stack failed, with this symptom."""

    kind: Literal["failed"] = "failed"
    symptom: Symptom


class Unresolved(Frozen):
    """Nothing can be said about the configuration."""

    kind: Literal["unresolved"] = "unresolved"
    reason: Reason
    detail: str
    evidence: tuple[Evidence, ...] = ()


Outcome = Annotated[Passed | Failed | Unresolved, Field(discriminator="kind")]


class Applied(StrEnum):
    """Whether a level was seen to take effect."""

    WITNESSED = "witnessed"
    READ = "read by this version"
    NOT_WITNESSED = "not witnessed"


class Settled(Frozen):
    """A trial with its last word, and what was seen of each factor's level.

    `contradicts` names the hypotheses whose `contradicted_by` was met, with the line. `voiceless` are
    the failures its log shows that were also seen while `good` passed.
    """

    trial: Trial
    attempt: int
    outcome: Outcome
    applied: Mapping[str, Applied] = Field(default_factory=dict)
    witnesses: Mapping[str, Evidence] = Field(default_factory=dict)
    contradicts: Mapping[str, Evidence] = Field(default_factory=dict)
    voiceless: tuple[str, ...] = ()


class Pair(Frozen):
    """Two trusted trials that differ in one factor, the failing one seen to fail again.

    `again` is the later trial of the failing configuration. A `Group` has no place here.
    """

    setting: Setting
    failing: str
    passing: str
    again: str


Prediction = Literal["passes", "fails", "nothing"]
"""What a hypothesis says that a trial will do; `nothing` where it does not speak of the change."""


class State(StrEnum):
    """What the trials say of a hypothesis."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


class StoppedBy(StrEnum):
    """Why the search ended."""

    CAUSE = "a cause is established"
    NO_CAUSE = "no single change heals"
    NOT_ESTABLISHED = "the trials do not establish a cause"
    BAD_PASSES = "`bad` does not fail"
    GOOD_FAILS = "`good` does not work"
    TARGET = "the target cannot be used"
    BUDGET = "the budget is spent"
    DIRTY = "the target is dirty"
    INTERRUPTED = "the run was interrupted"
    BUG = "an error of our own"
