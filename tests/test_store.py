import contextlib
import copy
import enum
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from hyperes.errors import UserError
from hyperes.files import read_json_lines, write_json
from hyperes.store import Recipe, Store

RECIPE = Recipe("directions", 1, {"steps": 7, "lora": {"rank": 32}}, {"problems": "0" * 64})

# What the child processes share: a builder that appends one number a step and goes on where the folder ends.
CHILD = """
import os, signal, sys, time
from pathlib import Path
from hyperes.files import write_text
from hyperes.store import Recipe, Store

RECIPE = Recipe("directions", 1, {"steps": 7, "lora": {"rank": 32}}, {"problems": "0" * 64})
store = Store(Path(sys.argv[1]))

def say(message):
    print(message, flush=True)

def count(work, steps=40, pause=0.005):
    done = len(list(work.glob("step-*")))
    say(f"from {done}")
    for step in range(done, steps):
        write_text(work / f"step-{step:03}", str(step))
        say(f"step {step}")
        time.sleep(pause)
"""


def child(root: Path, body: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", CHILD + body, str(root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    return out


def forbidden(work: Path) -> None:
    raise AssertionError(f"built again in {work}")


def write_weights(work: Path) -> None:
    (work / "weights").write_bytes(b"w" * 1000)


def leaves(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The paths of all scalars of a nested value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield path
        return
    for name, item in items:
        yield from leaves(item, (*path, name))


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: reordered(value[name]) for name in reversed(list(value))}
    return [reordered(item) for item in value] if isinstance(value, list) else value


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
names = st.text(max_size=5)
slices = st.dictionaries(
    names,
    st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)),
    max_size=4,
)


@settings(max_examples=30, deadline=None)
@given(slices)
def test_the_key_ignores_order_and_survives_json(content: dict) -> None:
    recipe = Recipe("grid", 1, content, {"a": "1", "b": "2"})
    assert Recipe("grid", 1, reordered(content), {"b": "2", "a": "1"}) == recipe
    assert Recipe("grid", 1, json.loads(json.dumps(content)), {"a": "1", "b": "2"}).key == recipe.key


@settings(max_examples=30, deadline=None)
@given(slices, scalars, st.data())
def test_the_key_depends_on_every_nested_value(content: dict, other: Any, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(list(leaves({"seed": 0, **content}))))
    changed = copy.deepcopy({"seed": 0, **content})
    place = changed
    for name in path[:-1]:
        place = place[name]
    old, place[path[-1]] = place[path[-1]], other
    same = json.dumps(old) == json.dumps(other)  # 1, 1.0 and True are three values
    assert (Recipe("grid", 1, changed, {}) == Recipe("grid", 1, {"seed": 0, **content}, {})) is same


def test_groups_stage_version_and_upstream_are_in_the_key() -> None:
    recipes = [
        Recipe("evolve", 1, {"merger": {"name": "dare"}, "optimizer": {"name": "cma"}}, {"pool": "a"}),
        Recipe("evolve", 1, {"merger": {"name": "cma"}, "optimizer": {"name": "dare"}}, {"pool": "a"}),
        Recipe("evolve", 1, {"merger": {"name": "dare", "optimizer": {"name": "cma"}}}, {"pool": "a"}),
        Recipe("evolve", 1, {"merger.name": "dare", "optimizer.name": "cma"}, {"pool": "a"}),
        Recipe("evolve", 2, {"merger": {"name": "dare"}, "optimizer": {"name": "cma"}}, {"pool": "a"}),
        Recipe("test", 1, {"merger": {"name": "dare"}, "optimizer": {"name": "cma"}}, {"pool": "a"}),
        Recipe("evolve", 1, {"merger": {"name": "dare"}, "optimizer": {"name": "cma"}}, {"pool": "b"}),
        Recipe("evolve", 1, {"merger": {"name": "dare"}, "optimizer": {"name": "cma"}}, {"directions": "a"}),
    ]
    assert len(set(recipes)) == len(recipes)
    # the key is a promise to stores on disk: whoever changes it orphans them all
    assert recipes[0].key == "f3aeec21407a80077a4b38780179c9d2cfbad2c7fe8e3cc64ee43aab92ed918d"


class Colour(str, enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), Path("a"), Colour.RED, np.float64(1), np.int64(1), np.str_("a"), {1: "a"}, {"a", "b"},
     b"a", "\ud800", OmegaConf.create({"a": 1}), OmegaConf.create([1])],
)  # fmt: skip
def test_what_is_not_plain_json_is_refused_by_its_place(value: Any, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=r"slice\.lora\[1\]\.rank: "):
        Recipe("directions", 1, {"lora": [0, {"rank": value}]}, {})
    with pytest.raises((TypeError, ValueError), match=r"value\.scores: "):
        Store(tmp_path).remember("c", "k", {"scores": value})


def test_a_recipe_takes_no_live_configuration_and_keeps_its_own_copy() -> None:
    with pytest.raises(TypeError, match="slice: want a plain dict, not DictConfig"):
        Recipe("grid", 1, OmegaConf.create({"a": 1}), {})
    with pytest.raises(ValueError, match="stage"):
        Recipe("../grid", 1, {}, {})
    content = {"scales": [1.0]}
    recipe = Recipe("grid", 1, content, {})
    content["scales"].append(2.0)
    assert recipe == Recipe("grid", 1, {"scales": (1.0,)}, {})


def test_an_artifact_is_built_once_and_says_where_it_came_from(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "store")
    assert store.find(RECIPE) is None
    artifact = store.build(RECIPE, write_weights)
    assert artifact.path == store.root / "directions" / RECIPE.key[:24]
    assert {path.name for path in artifact.path.iterdir()} == {"weights", "recipe.json"}
    assert Store(store.root).build(RECIPE, forbidden) == artifact == store.find(RECIPE)
    record = json.loads((artifact.path / "recipe.json").read_text())
    assert record["recipe"] == RECIPE.content
    assert record["resumed"] is False
    assert {"hyperes", "python", "torch", "nevergrad", "cma"} <= set(record["versions"])
    assert {"created", "host", "seconds", "commit"} <= set(record)


def test_a_failed_builder_leaves_its_work_and_publishes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def fail(work: Path) -> None:
        write_weights(work)
        raise ZeroDivisionError("reward")

    with pytest.raises(ZeroDivisionError, match="reward"):
        store.build(RECIPE, fail)
    assert store.find(RECIPE) is None
    seen: list[str] = []
    artifact = store.build(RECIPE, lambda work: seen.extend(path.name for path in work.iterdir()))
    assert seen == ["weights"]
    assert (artifact.path / "weights").exists()
    assert json.loads((artifact.path / "recipe.json").read_text())["resumed"] is True
    with pytest.raises(ValueError, match=r"recipe\.json: this name is the store's own"):
        store.build(Recipe("grid", 1, {}, {}), lambda work: write_json(work / "recipe.json", {}))


def test_a_build_killed_at_any_moment_is_resumed(tmp_path: Path) -> None:
    """SIGKILL after random delays until the build gets through: steps follow on, none is lost, no lock goes stale."""
    chance, kills, starts = random.Random(0), 0, []
    while True:
        process = child(tmp_path, "store.build(RECIPE, count)")
        assert process.stdout is not None
        first = process.stdout.readline()  # "from N": inside the builder
        starts.append(int(first.split()[1]))
        if kills < 4:
            time.sleep(chance.uniform(0, 0.08))
            process.kill()
            kills += 1
        _, err = process.communicate(timeout=20)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, err
        assert Store(tmp_path).find(RECIPE) is None
    assert starts == sorted(starts)
    assert starts[-1] > 0
    artifact = Store(tmp_path).build(RECIPE, forbidden)
    expected = {f"step-{step:03}": str(step) for step in range(40)}
    recipe = (artifact.path / "recipe.json").read_text()
    # nothing torn is published either
    assert {p.name: p.read_text() for p in artifact.path.iterdir()} == {**expected, "recipe.json": recipe}


@pytest.mark.parametrize("moment", ["os.replace", "os.fsync"])
def test_a_build_killed_while_it_publishes_is_whole(tmp_path: Path, moment: str) -> None:
    """Killed at every fsync and every rename in turn: each leaves either nothing or the whole artifact."""
    for call in range(1, 20):
        body = f"""
real, calls = {moment}, 0
def dying(*arguments):
    global calls
    calls += 1
    if calls == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
def build(work):
    count(work, steps=1, pause=0)
{moment} = dying
store.build(RECIPE, build)
"""
        root = tmp_path / str(call)
        process = child(root, body)
        process.communicate(timeout=20)
        store = Store(root)
        if process.returncode == 0:
            assert call > 3
            return
        assert process.returncode == -signal.SIGKILL

        def complete(work: Path) -> None:
            (work / "step-000").write_text("0")

        artifact = store.build(RECIPE, complete)
        assert {path.name for path in artifact.path.iterdir()} == {"step-000", "recipe.json"}
        assert not artifact.path.with_name(artifact.path.name + ".work").exists()
    pytest.fail("the child never got through")


def test_a_second_process_waits_says_so_and_reuses(tmp_path: Path) -> None:
    root, go = tmp_path / "store", tmp_path / "go"
    body = f"""
def wait(work):
    count(work, steps=0)
    while not os.path.exists({str(go)!r}):
        time.sleep(0.01)
store.build(RECIPE, wait)
"""
    first = child(root, body)
    assert first.stdout is not None
    assert first.stdout.readline() == "from 0\n"
    second = child(root, "say(store.build(RECIPE, count, on_wait=say).path.name)")
    assert second.stdout is not None
    short = RECIPE.key[:24]
    assert second.stdout.readline() == f"waiting for another process that builds directions {short}...\n"
    go.touch()
    assert finish(second) == f"{short}\n"
    finish(first)
    messages: list[str] = []
    Store(root).build(RECIPE, forbidden, messages.append)
    assert messages == []


def test_a_lock_dies_with_its_process_and_the_waiter_goes_on(tmp_path: Path) -> None:
    first = child(tmp_path, "store.build(RECIPE, lambda work: count(work, steps=3) or time.sleep(60))")
    assert first.stdout is not None
    while first.stdout.readline() != "step 2\n":
        pass
    messages: list[str] = []

    def told(message: str) -> None:
        messages.append(message)
        first.kill()

    artifact = Store(tmp_path).build(RECIPE, write_weights, told)
    first.communicate()
    assert len(messages) == 1
    assert {path.name for path in artifact.path.glob("step-*")} == {"step-000", "step-001", "step-002"}


def test_threads_build_once_and_share_a_workspace_in_turn(tmp_path: Path) -> None:
    store, built, failures = Store(tmp_path), [], []
    shared = Recipe("trajectory", 1, {"seed": 1}, {})

    def slow(work: Path) -> None:
        built.append(threading.get_ident())
        time.sleep(0.1)

    def run() -> None:
        try:
            store.build(RECIPE, slow)
            with store.workspace(shared) as folder:
                count = folder / "count"
                value = int(count.read_text()) if count.exists() else 0
                time.sleep(0.02)
                count.write_text(str(value + 1))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert failures == []
    assert len(built) == 1
    with store.workspace(shared) as folder:
        assert (folder / "count").read_text() == "4"
        assert json.loads((folder / "workspace.json").read_text())["recipe"] == shared.content
    assert store.find(shared) is None
    with pytest.raises(ValueError, match="published artifact"), store.workspace(RECIPE):
        pass
    with pytest.raises(UserError, match="no finished artifact"):
        store.build(shared, forbidden)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A disk of 64 KiB; None where none can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True)
    except OSError:
        done = None
    if done is None or done.returncode:
        yield None
        return
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_reported_and_the_same_command_goes_on(small_disk: Path | None, tmp_path: Path) -> None:
    store = Store(small_disk or tmp_path / "store")

    def fill(work: Path) -> None:
        (work / "kept").write_text("kept")
        ballast = work / "ballast"
        if small_disk is None:
            ballast.symlink_to("/dev/full")  # the same error from the same system call, without a mount
        with ballast.open("wb") as stream:
            stream.write(bytes(1 << 20))

    with pytest.raises(UserError, match=r"disk that holds .* is full; nothing was lost, free some space") as caught:
        store.build(RECIPE, fill)
    assert str(store.root) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert store.find(RECIPE) is None

    if small_disk is not None:  # the builder gets through, the store itself finds no room for recipe.json
        with pytest.raises(UserError, match="is full"):
            store.build(RECIPE, lambda work: None)
        with pytest.raises(UserError, match="is full"):
            store.remember("context", "key", "v" * 5000)
        assert store.recall("context", "key") is None
        with pytest.raises(UserError, match="is full"), store.workspace(Recipe("trajectory", 1, {}, {})):
            pass

    def proceed(work: Path) -> None:
        (work / "ballast").unlink()
        assert (work / "kept").read_text() == "kept"

    assert (store.build(RECIPE, proceed).path / "kept").exists()


def test_libraries_that_hide_the_reason_are_understood(small_disk: Path | None, tmp_path: Path) -> None:
    """safetensors words it as Rust does, torch.save does not give it, others raise while they handle it."""
    from safetensors.numpy import save_file

    def rust(work: Path) -> None:
        if small_disk is None:
            raise ValueError("Error while serializing: I/O error: No space left on device (os error 28)")
        save_file({"x": np.zeros(1 << 20)}, work / "x.safetensors")

    def mute(work: Path) -> None:
        with contextlib.suppress(OSError):
            (work / "x").write_bytes(bytes(1 << 20))
        raise RuntimeError("unexpected pos 576 vs 534")

    def chained(work: Path) -> None:
        try:
            Path("/dev/full").write_bytes(b"x")
        except OSError as error:
            raise RuntimeError("checkpoint") from error

    store = Store(small_disk or tmp_path / "store")
    for builder in (chained, rust, *([mute] if small_disk else [])):
        with pytest.raises(UserError, match="is full"):
            store.build(RECIPE, builder)


def test_a_newer_damaged_or_impossible_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "store.json").write_text('{"format": 2}')
    with pytest.raises(UserError, match=r"store\.json: written by a newer hyperes \(store format 2, .*upgrade"):
        Store(tmp_path / "newer")
    assert [path.name for path in (tmp_path / "newer").iterdir()] == ["store.json"]  # left untouched
    for text in ("", "[]", '{"format": "1"}', "{}"):
        (tmp_path / "newer" / "store.json").write_text(text)
        with pytest.raises(UserError, match=r"store\.json: damaged"):
            Store(tmp_path / "newer")
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="a file is in the way"):
            Store(root)
    with pytest.raises(UserError, match="cannot hold a store"):
        Store(Path("/proc/store"))  # not even root can write there


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '"key"', "changed", "other"])
def test_a_damaged_recipe_is_named_and_never_trusted(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    path = store.build(RECIPE, write_weights).path / "recipe.json"
    if damage == "changed":
        damage = path.read_text().replace('"steps": 7', '"steps": 8')
    elif damage == "other":
        other = Recipe("directions", 1, {"steps": 8}, {})
        damage = json.dumps({"key": other.key, "recipe": other.content})
    path.write_text(damage)
    for use in (store.find, lambda recipe: store.build(recipe, forbidden)):
        with pytest.raises(UserError, match=r"recipe\.json.*delete the folder .*" + RECIPE.key[:24]):
            use(RECIPE)


@pytest.mark.parametrize("damage", ["short", "missing"])
def test_a_damaged_file_is_named_and_never_trusted(tmp_path: Path, damage: str) -> None:
    def lines(work: Path) -> None:
        (work / "below").mkdir()
        (work / "below" / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n')

    store = Store(tmp_path)
    path = store.build(RECIPE, lines).path / "below" / "rows.jsonl"
    assert store.find(RECIPE) is not None
    path.write_text('{"a": 1}\n')  # a whole line less: it would read well
    if damage == "missing":
        path.unlink()
    for use in (store.find, lambda recipe: store.build(recipe, forbidden)):
        with pytest.raises(
            UserError, match=r"below/rows\.jsonl: damaged.*18 bytes; delete the folder .*" + RECIPE.key[:24]
        ):
            use(RECIPE)


values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


@settings(max_examples=15, deadline=None)
@given(values)
def test_a_remembered_value_comes_back_exactly(value: Any) -> None:
    with tempfile.TemporaryDirectory() as root:
        store = Store(Path(root))
        store.remember("c" * 64, "k" * 64, value)
        recalled = Store(Path(root)).recall("c" * 64, "k" * 64)
        assert json.dumps(recalled, sort_keys=True) == json.dumps(value, sort_keys=True)


def test_a_torn_or_foreign_value_is_ignored(tmp_path: Path) -> None:
    store, context, key = Store(tmp_path), "c" * 64, "ab" + "0" * 62
    store.remember(context, key, {"fitness": 0.5, "scores": [1, 0]})
    path = tmp_path / "fitness" / context[:24] / "ab" / f"{key[:24]}.json"
    whole = path.read_bytes()
    for size in range(len(whole) - 1):
        path.write_bytes(whole[:size])
        assert store.recall(context, key) is None
    for damaged in (whole.replace(b"0.5", b"0.6"), b"[]", b"null", b"\xff", whole.replace(b"[", b"")):
        path.write_bytes(damaged)
        assert store.recall(context, key) is None
    path.write_bytes(whole)
    assert store.recall(context, key[:24] + "f" * 40) is None  # the same file, another key
    assert store.recall(context[:24] + "f" * 40, key) is None
    assert store.recall(context, key) == {"fitness": 0.5, "scores": [1, 0]}
    with pytest.raises(ValueError, match="want a digest"):
        store.recall("../..", key)


def test_a_torn_last_line_is_forgiven_and_no_other(tmp_path: Path) -> None:
    whole = '{"a": "é"}\n{"b": "é"}\n'.encode()
    path = tmp_path / "rows.jsonl"
    for end in range(len(whole) + 1):  # the writer was killed after any byte, also inside a character
        path.write_bytes(whole[:end])
        rows = [row for _, row in read_json_lines(path, torn_tail=True)]
        assert rows == [{"a": "é"}, {"b": "é"}][: len(rows)]
        assert len(rows) >= whole[:end].count(b"\n")
    path.write_bytes(whole.replace(b"\xc3", b"", 1))
    with pytest.raises(UserError, match="not UTF-8 text"):
        list(read_json_lines(path, torn_tail=True))
    path.write_bytes(b'{"a": \n' + whole)
    with pytest.raises(UserError, match="line 1: not valid JSON"):
        list(read_json_lines(path, torn_tail=True))


def test_writers_and_readers_of_one_value_never_see_half_of_it(tmp_path: Path) -> None:
    body = """
for turn in range(60):
    store.remember("context", "key", ["x" * 20000, turn])
"""
    store, seen, failures, stop = Store(tmp_path), [], [], threading.Event()
    store.remember("context", "key", ["x" * 20000, -1])

    def write() -> None:
        try:
            while not stop.is_set():
                store.remember("context", "key", ["x" * 20000, -2])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(2)]
    process = child(tmp_path, body)
    for thread in threads:
        thread.start()
    while process.poll() is None:
        seen.append(store.recall("context", "key"))
    stop.set()
    for thread in threads:
        thread.join()
    finish(process)
    assert failures == []
    assert all(value is not None and len(value[0]) == 20000 for value in seen)
    assert len(seen) > 10
    assert [path.name for path in (tmp_path / "fitness").rglob("*") if path.is_file()] == ["key.json"]
