"""Where everything of a run lies: the only module that spells a path of a run folder.

runs/<name>/
  manifest.json   settings, versions, plan, counts, tokens, times, state
  profile.json    where the time went, when it was last worked on
  release/        synthetic.csv, synthetic.jsonl, schema.json, privacy-card.json, privacy-card.md, summary.html,
                  seal.json; measurements.json where tables were measured
  internal/       NOT FOR RELEASE: what is computed against private rows without noise
  work/           model answers by request hash, raw outputs, events, vectors of synthetic texts by text hash,
                  copies of what is in the release and cannot be made again
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from selpe.errors import ConfigError, RunError, did_you_mean

# What no name of a file may be on Windows, whatever ends it has, and what may not be in one there.
_DEVICES = frozenset(
    {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"}
    | {f"{port}{n}" for port in ("COM", "LPT") for n in "0123456789¹²³"}
)
_NOT_IN_NAMES = frozenset('<>:"/\\|?*')
_LONGEST_NAME = 200  # bytes: with what is put behind it, it stays below the 255 of most file systems


class _Named:
    """A file or folder by its name in the folder that holds it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, place: _Folder, kind: type | None = None) -> Path:
        return place.folder / self.name


@dataclass(frozen=True)
class _Folder:
    folder: Path


class ReleaseFolder(_Folder):
    """The files of a release, wherever it lies: in its run, half written, or unpacked by a receiver."""

    csv = _Named("synthetic.csv")
    jsonl = _Named("synthetic.jsonl")
    schema = _Named("schema.json")
    card = _Named("privacy-card.json")
    card_text = _Named("privacy-card.md")
    summary = _Named("summary.html")
    measurements = _Named("measurements.json")  # of runs that have measured tables
    judged = _Named("judged.txt")  # in a packed release only: whether its owner has judged it
    sums = _Named("SHA256SUMS")  # in a packed release only


class InternalFolder(_Folder):
    """What is computed against private rows without noise, and never released."""

    note = _Named("NOT-FOR-RELEASE")
    evaluation = _Named("evaluation.json")
    report = _Named("report.html")


class WorkFolder(_Folder):
    """What a run needs to be resumed, and what others follow it by. Holds nothing of a private row."""

    lock = _Named("lock")  # held by the process that works on the run
    schema = _Named("schema.yaml")  # as it was when the run began: a release is checked against it
    answers = _Named("answers.jsonl")
    vectors = _Named("vectors.sqlite")
    events = _Named("events.jsonl")
    raw = _Named("raw.jsonl")  # the outputs behind the release as the model wrote them, a JSON string a line
    extracted = _Named("extracted.jsonl")  # what could be read of them, fit for release or not
    composition = _Named("composition.json")  # what further records of the release are written from
    further = _Named("further")  # parts beyond the core: a folder of its own kind (run/large/parts.py)
    packed = _Named("release.zip")  # by a server
    accepted = _Named("accepted.json")  # what a server agreed to
    ended = _Named("ended.json")  # why a run of a server ended before it was done
    training = _Named("training")  # a model while it learns: a folder
    classifier = _Named("classifier.json")  # what opens the classifier of `dpds` again
    tuned = _Named("tuned.jsonl")  # answers of a model that the run has tuned
    train_log = _Named("train.log")  # what another interpreter said while it trained
    judged = _Named("judged.jsonl")  # records that another interpreter is to classify
    scores = _Named("scores.json")  # what its classifier says about them

    def topics(self, digest: str) -> Path:
        """The topics that `ctcl` has found in public records of this hash."""
        return self.folder / f"topics-{digest[:16]}.json"

    @property
    def unfinished(self) -> ReleaseFolder:
        """The release while it is written."""
        return ReleaseFolder(self.folder / "release.part")

    @property
    def released(self) -> ReleaseFolder:
        """Copies of those released files that cannot be made again."""
        return ReleaseFolder(self.folder / "released")


class Workspace(_Folder):
    """The folder of one run."""

    manifest = _Named("manifest.json")
    profile = _Named("profile.json")

    @property
    def is_run(self) -> bool:
        """Whether there is a run in the folder."""
        return self.manifest.is_file()

    def own_schema(self, suffix: str = ".yaml") -> Path:
        """The schema of a run whose settings name no file that lasts."""
        return self.folder / f"schema{suffix}"

    @property
    def release(self) -> ReleaseFolder:
        """What may be released."""
        return ReleaseFolder(self.folder / "release")

    @property
    def internal(self) -> InternalFolder:
        """What must not be released."""
        return InternalFolder(self.folder / "internal")

    @property
    def work(self) -> WorkFolder:
        """What the run itself needs."""
        return WorkFolder(self.folder / "work")


def workspaces(out: Path) -> Iterator[Workspace]:
    """Every run in a folder of runs, by name."""
    # Names that begin with a dot are of folders that are being made or removed.
    return (Workspace(path) for path in sorted(out.glob("[!.]*")) if Workspace(path).is_run)


def require_run_name(name: str) -> str:
    """The name of a new run, which is one folder in `out` on every system; ConfigError for any other.

    What one system takes, another one must be able to unpack: so Windows' rules hold everywhere.
    """
    wrong = _wrong_with(name)
    if wrong:
        shown = "".join(sign if sign.isprintable() else "\ufffd" for sign in name[:80])
        raise ConfigError(
            f"{wrong}, so it cannot be a run's name",
            where=f"name '{shown}'",
            hint="take letters, digits, '-', '_' and '.'; where the folder of all runs lies is set by `out`",
        )
    return name


def _wrong_with(name: str) -> str:
    """Why a name cannot be a folder's on some system; '' where it can."""
    if not name.strip(" ."):
        return "it is empty, or nothing but dots and blanks"
    if not name.isprintable():
        return "it has characters that cannot be shown"
    if found := sorted(_NOT_IN_NAMES & set(name)):
        return f"it has {' and '.join(found)} in it"
    if name != name.strip(" ") or name.endswith("."):
        return "it begins or ends with a blank, or ends with a dot"
    if name.partition(".")[0].rstrip(" ").upper() in _DEVICES:
        return "Windows keeps this name for a device"
    return "it is too long" if len(name.encode()) > _LONGEST_NAME else ""


def folder_of_run(run: str | Path, out: Path) -> Path:
    """The folder of a run that is named by its name in `out`, or by its folder."""
    places = (Path(run).expanduser(), out.expanduser() / run)
    for folder in places:
        if Workspace(folder).is_run:
            return folder.resolve()
    known = [place.folder.name for place in workspaces(out.expanduser())]
    near = did_you_mean(Path(run).name, known)
    hint = f"{near}`selpe runs` lists them" if known else f"there are no runs in {out}: give the folder as `out`"
    raise RunError(f"there is no run '{run}'", where=str(out), hint=hint)
