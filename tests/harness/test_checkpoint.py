import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import checkpoint
from harness.replay import Replay
from tests.support.episodes import CPU, DISCRETE, batch_of

LENGTHS = [7, 2, 1, 7, 3, 2, 1, 1, 6, 2, 7, 1, 4, 4, 2]


def ring(count: int, capacity: int = 6) -> Replay:
    replay = Replay(DISCRETE, capacity, CPU)
    for k in range(count):
        replay.add(batch_of(DISCRETE, [LENGTHS[k]], [k % 2 == 0], k))
    return replay


def same(a: Replay, b: Replay) -> None:
    assert (a.added, len(a)) == (b.added, len(b))
    slots = torch.arange(len(a))
    for name, x in a.take(slots).tensors().items():
        assert torch.equal(x, b.take(slots).tensors()[name]), name  # type: ignore[arg-type]


def save(folder: Path, state: dict[str, Any], replay: Replay | None) -> checkpoint.Parts:
    """As a process that begins anew saves: it knows what it has loaded."""
    before = checkpoint.load(folder, None, CPU) if (folder / checkpoint.NAME).exists() else None
    return checkpoint.save(folder, state, replay, before["parts"] if before else [])


def loaded(folder: Path) -> tuple[Any, Replay]:
    replay = Replay(DISCRETE, 6, CPU)
    return checkpoint.load(folder, replay, CPU), replay


def test_none_where_there_is_none(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path, None, CPU) is None


@pytest.mark.parametrize("stops", [[3], [3, 5], [2, 9, 15], [1, 2, 3, 4, 5, 6, 7, 8], [4, 4, 5]])
def test_what_is_saved_is_read_whatever_was_saved_before(tmp_path: Path, stops: list[int]) -> None:
    for stop in stops:
        save(tmp_path, {"x": torch.tensor([stop]), "text": "é"}, ring(stop))
        state, replay = loaded(tmp_path)
        assert state["x"].tolist() == [stop]
        assert state["text"] == "é"
        same(replay, ring(stop))


def test_each_checkpoint_adds_only_what_was_played_since_the_one_before(tmp_path: Path) -> None:
    parts = []
    for stop in (2, 4, 8, 13):
        save(tmp_path, {}, ring(stop))
        parts.append(sorted(int(p.stem) for p in (tmp_path / "replay").glob("*.pt")))
    assert parts == [[2], [2, 4], [4, 8], [8, 13]]  # a part goes when a ring of 6 has overwritten all of it
    assert len(torch.load(tmp_path / "replay" / "13.pt", weights_only=True)["length"]) == 5


def test_saving_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is as large as its networks and optimisers: what it names is remembered, not read again."""

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("read while saving")

    parts: checkpoint.Parts = []
    named = []
    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", refused)
        patch.setattr(Path, "read_bytes", refused)
        for stop in (2, 4, 8, 13, 13):
            parts = checkpoint.save(tmp_path, {"n": stop}, ring(stop), parts)
            named.append(parts)
    assert named == [[[0, 2]], [[0, 2], [2, 4]], [[2, 4], [4, 8]], [[4, 8], [8, 13]], [[4, 8], [8, 13]]]
    state, replay = loaded(tmp_path)
    assert (state["n"], state["parts"]) == (13, parts)
    same(replay, ring(13))


@pytest.mark.parametrize("at", range(1, 6))  # the part, the checkpoint, three parts that it no longer names
def test_a_kill_between_any_two_changes_of_the_disk_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Before its ``at``-th replacement or removal of a file: what is there is one of the two checkpoints, whole."""
    parts: checkpoint.Parts = []
    for stop in (2, 4, 7):
        parts = checkpoint.save(tmp_path, {"n": stop}, ring(stop), parts)
    done = 0

    def counted(change: Any) -> Any:
        def changed(self: Path, *rest: Any, **more: Any) -> Any:
            nonlocal done
            done += 1
            if done >= at:  # the dead do nothing more, not even tidy up
                raise KeyboardInterrupt
            return change(self, *rest, **more)

        return changed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", counted(Path.replace))
        patch.setattr(Path, "unlink", counted(Path.unlink))
        with pytest.raises(KeyboardInterrupt):
            checkpoint.save(tmp_path, {"n": 13}, ring(13), parts)
    state, replay = loaded(tmp_path)
    assert state["n"] == (7 if at <= 2 else 13)
    same(replay, ring(state["n"]))
    checkpoint.save(tmp_path, {"n": 14}, ring(14), state["parts"])
    same(loaded(tmp_path)[1], ring(14))


@pytest.mark.parametrize("played", [5, 9, 13])  # 9 and 13: the ring of 6 has overwritten every part there was
def test_a_part_written_without_its_checkpoint_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, played: int
) -> None:
    """Killed between the replay's part and checkpoint.pt: the checkpoint before is whole, and the next one too."""
    save(tmp_path, {"n": 3}, ring(3))
    write = checkpoint._write

    def killed(path: Path, state: Any) -> None:
        if path.name == checkpoint.NAME:
            raise KeyboardInterrupt
        write(path, state)

    monkeypatch.setattr(checkpoint, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, {"n": played}, ring(played))
    monkeypatch.undo()
    state, replay = loaded(tmp_path)
    assert state["n"] == 3
    same(replay, ring(3))
    save(tmp_path, {"n": 4}, ring(4))
    same(loaded(tmp_path)[1], ring(4))
    assert sorted(p.name for p in (tmp_path / "replay").iterdir()) == ["3.pt", "4.pt"]  # the orphan is gone


@pytest.mark.parametrize("keep", [0, 10, 200, -5])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, keep: int) -> None:
    save(tmp_path, {"x": torch.arange(100.0)}, None)
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"checkpoint\.pt: damaged"):
        checkpoint.load(tmp_path, None, CPU)


def test_a_damaged_or_missing_part_is_named(tmp_path: Path) -> None:
    save(tmp_path, {}, ring(3))
    save(tmp_path, {}, ring(5))
    part = tmp_path / "replay" / "5.pt"
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"replay/5\.pt: damaged"):
        loaded(tmp_path)
    part.unlink()
    with pytest.raises(ValueError, match=r"replay/5\.pt: missing"):
        loaded(tmp_path)


def test_a_part_of_another_time_is_refused(tmp_path: Path) -> None:
    save(tmp_path, {}, ring(3))
    save(tmp_path, {}, ring(5))
    (tmp_path / "replay" / "5.pt").write_bytes((tmp_path / "replay" / "3.pt").read_bytes())
    with pytest.raises(ValueError, match=r"replay/5\.pt: ends at episode 3, not 5"):
        loaded(tmp_path)


class Evil:
    def __reduce__(self) -> Any:
        return (Path("/tmp").joinpath, ("never",))


def test_reading_runs_no_code(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="damaged"):
        checkpoint.load(tmp_path, None, CPU)
    torch.save({"version": checkpoint.VERSION, "x": Evil()}, tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match="damaged"):
        checkpoint.load(tmp_path, None, CPU)


def test_another_version_is_refused(tmp_path: Path) -> None:
    torch.save({"version": 99, "parts": []}, tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match="version 99, this harness reads 1"):
        checkpoint.load(tmp_path, None, CPU)


def test_networks_alone(tmp_path: Path) -> None:
    net = torch.nn.Linear(2, 3)
    checkpoint.save_networks(tmp_path / "best.pt", net.state_dict(), env_steps=7, score=0.5)
    found = checkpoint.load_networks(tmp_path / "best.pt")
    assert (found["env_steps"], found["score"]) == (7, 0.5)
    assert torch.equal(found["networks"]["weight"], net.weight)
    (tmp_path / "best.pt").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"best\.pt: damaged"):
        checkpoint.load_networks(tmp_path / "best.pt")
