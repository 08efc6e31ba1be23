"""CMA-ES: the paper's equations, and a record from which a killed search goes on bit for bit."""

import json
import math
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
import threadpoolctl  # type: ignore[import-untyped]

from hyperes.errors import UserError
from hyperes.search import evolve
from hyperes.search.cma import Evolution
from hyperes.search.evolve import RECORDED_DIMENSIONS, Generation, generation_sizes, standardise

DIMENSION, POPULATION, GENERATIONS = 5, 6, 3
START = np.linspace(-1.0, 2.0, DIMENSION)


def sphere(vectors):
    return [-float(np.sum((vector - 0.5) ** 2)) for vector in vectors]


def rounded_sphere(vectors):
    """As accuracy on few problems: many ties."""
    return [round(value) / 4 for value in sphere(vectors)]


def search(trials, evaluate=rounded_sphere, on_generation=lambda *_: None, start=START, keep=1, **changes):
    settings = {"sigma": 0.3, "population": POPULATION, "seed": 7, "diagonal": False} | changes
    sizes = [settings["population"]] * settings.pop("generations", GENERATIONS)
    evolution = Evolution(start, **settings)
    return evolve.search(trials, evolution, sizes, evaluate=evaluate, on_generation=on_generation, keep=keep)


def told(generations):
    return [(g.number, g.best, g.mean, g.std, g.sigma, g.mean_vector.tobytes()) for g in generations]


class Reference:
    """CMA-ES written from eq. 26-31 and the constants of Hansen's tutorial (arXiv:1604.00772), for any sampler."""

    def __init__(self, mean, sigma, population):
        n = mean.size
        weights = np.log((population + 1) / 2) - np.log(np.arange(1, population // 2 + 1))
        self.w = weights / weights.sum()
        self.mu_w = 1 / np.sum(self.w**2)
        self.c_sigma = (self.mu_w + 2) / (n + self.mu_w + 3)
        self.d_sigma = 1 + 2 * max(0, np.sqrt((self.mu_w - 1) / (n + 1)) - 1) + self.c_sigma
        self.c_c = (4 + self.mu_w / n) / (n + 4 + 2 * self.mu_w / n)
        self.c_1 = min(1, population / 6) * 2 / ((n + 1.3) ** 2 + self.mu_w)
        self.c_mu = min(1 - self.c_1, 2 * (0.25 + self.mu_w - 2 + 1 / self.mu_w) / ((n + 2) ** 2 + self.mu_w))
        self.chi = math.sqrt(2) * math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2))
        self.m, self.sigma, self.n, self.t = mean, sigma, n, 0
        self.p_sigma, self.p_c = np.zeros(n), np.zeros(n)
        self.C = np.diag(np.exp(1e-4 / n * np.arange(n)))  # pycma's "identity"

    def step_length(self, x):
        return np.sqrt((x - self.m) @ np.linalg.solve(self.C, x - self.m)) / self.sigma

    def tell(self, vectors, fitness):
        self.t += 1
        best = np.argsort(-np.array(fitness), kind="stable")[: self.w.size]
        y = (np.array(vectors)[best] - self.m) / self.sigma
        y_w = self.w @ y
        values, axes = np.linalg.eigh(self.C)
        self.p_sigma = (1 - self.c_sigma) * self.p_sigma + np.sqrt(
            self.c_sigma * (2 - self.c_sigma) * self.mu_w
        ) * axes @ ((axes.T @ y_w) / np.sqrt(values))
        length = np.linalg.norm(self.p_sigma)
        stalled = length**2 / (1 - (1 - self.c_sigma) ** (2 * self.t)) >= (2 + 4 / (self.n + 1)) * self.n
        self.p_c = (1 - self.c_c) * self.p_c
        if not stalled:
            self.p_c = self.p_c + np.sqrt(self.c_c * (2 - self.c_c) * self.mu_w) * y_w
        kept = 1 - self.c_1 - self.c_mu + (self.c_1 * self.c_c * (2 - self.c_c) if stalled else 0)
        self.C = kept * self.C + self.c_1 * np.outer(self.p_c, self.p_c) + self.c_mu * (y.T * self.w) @ y
        self.m = self.m + self.sigma * y_w
        self.sigma *= np.exp(min(1, self.c_sigma / self.d_sigma * (length / self.chi - 1)))


@pytest.mark.parametrize(("goal", "population"), [("ellipsoid", 10), ("ellipsoid", 5), ("longest", 10)])
def test_updates_are_those_of_the_paper(goal, population):
    """``longest`` prefers the longest steps, which pycma clips when it does not recognise its own points; below a
    population of 6 pycma's default mirrors samples."""
    start = np.linspace(-2, 3, 8)
    evolution = Evolution(start, sigma=0.3, population=population, seed=1, diagonal=False)
    reference = Reference(start, 0.3, population)
    axes = 10 ** np.linspace(0, 3, 8)
    lengths = []
    for generation in range(20):
        vectors = evolution.ask()
        lengths += [reference.step_length(x) for x in vectors]
        fitness = lengths[-population:] if goal == "longest" else [-float(np.sum(axes * x**2)) for x in vectors]
        evolution.tell(vectors, fitness)
        reference.tell(vectors, fitness)
        assert evolution.generation == generation + 1
        np.testing.assert_allclose(evolution.mean, reference.m, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(evolution.sigma, reference.sigma, rtol=1e-8)
    assert goal != "longest" or max(lengths) > np.sqrt(8) + 2 * 8 / 10  # pycma's clip would have shown


def test_step_size_follows_eq_29_and_30_in_the_papers_dimension():
    """From 300 variables on pycma's default is another step-size rule. The first update has C = I, so it is checked
    without the lazy eigendecomposition."""
    start, population = np.full(960, 0.3), 24
    evolution = Evolution(start, sigma=0.3, population=population, seed=1, diagonal=False)
    reference = Reference(start, 0.3, population)
    vectors = evolution.ask()
    evolution.tell(vectors, sphere(vectors))
    reference.tell(vectors, sphere(vectors))
    np.testing.assert_allclose(evolution.mean, reference.m, rtol=1e-8)
    np.testing.assert_allclose(evolution.sigma, reference.sigma, rtol=1e-8)


def test_samples_are_centred_on_the_start_with_the_given_sigma():
    vectors = np.array(Evolution(np.full(400, 5.0), sigma=0.3, population=50, seed=0, diagonal=False).ask())
    assert abs(vectors.mean() - 5) < 5 * 0.3 / np.sqrt(vectors.size)
    assert abs(vectors.std() / 0.3 - 1) < 0.03


def test_sphere_improves_and_the_answer_is_the_mean(tmp_path):
    outcome = search(tmp_path / "trials.jsonl", sphere, generations=60)
    assert sphere([outcome.mean_vector])[0] > sphere([START])[0] * 1e-4
    assert outcome.best_fitness == sphere([outcome.seen[0][1]])[0] == max(g.best for g in outcome.generations)
    assert outcome.mean_vector.tobytes() == outcome.generations[-1].mean_vector.tobytes()
    assert outcome.mean_vector.tobytes() != outcome.seen[0][1].tobytes()


def test_flat_fitness_neither_restarts_nor_stops():
    evolution = Evolution(START, sigma=0.3, population=POPULATION, seed=0, diagonal=False)
    pycma = evolution._es
    for _ in range(30):
        vectors = evolution.ask()
        evolution.tell(vectors, [0.25] * POPULATION)
    assert evolution._optimizer.es is evolution._es is pycma
    assert evolution.generation == pycma.countiter == 30


def test_a_search_that_has_converged_to_rounding_goes_on():
    evolution = Evolution(START, sigma=0.3, population=POPULATION, seed=0, diagonal=False)
    evolution.tell(vectors := evolution.ask(), sphere(vectors))
    evolution._es.sigma = 1e-30  # pycma's noeffectcoord and noeffectaxis hold
    reached = evolution.mean
    for _ in range(3):
        vectors = evolution.ask()
        np.testing.assert_allclose(vectors, [reached] * POPULATION, rtol=1e-14)
        evolution.tell(vectors, sphere(vectors))
    np.testing.assert_allclose(evolution.mean, reached, rtol=1e-14)


def test_an_ill_conditioned_covariance_leaves_the_mean_in_search_coordinates():
    evolution = Evolution(START, sigma=0.3, population=POPULATION, seed=0, diagonal=False)
    evolution.tell(vectors := evolution.ask(), sphere(vectors))
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(DIMENSION, DIMENSION)))[0]
    evolution._es.sm.C = rotation @ np.diag(10.0 ** np.linspace(-7, 6.5, DIMENSION)) @ rotation.T
    evolution._es.sm.update_now(-1)
    evolution._es._updateBDfromSM(evolution._es.sm)
    mean = evolution.mean
    evolution.ask()  # where pycma would change coordinates
    assert evolution.mean.tobytes() == mean.tobytes()


def test_tied_vectors_rank_in_ask_order():
    evolution = Evolution(np.zeros(40), sigma=1.0, population=40, seed=0, diagonal=False)
    vectors = evolution.ask()
    fitness = [float(i % 2) for i in range(40)]
    reference = Reference(np.zeros(40), 1.0, 40)
    evolution.tell(vectors, fitness)
    reference.tell(vectors, fitness)
    np.testing.assert_allclose(evolution.mean, reference.m, atol=1e-12)


def test_diagonal_runs_in_thousands_of_variables(tmp_path):
    start = np.full(2000, 3.0)
    outcome = search(tmp_path / "trials.jsonl", sphere, start=start, population=12, generations=15, diagonal=True)
    assert sphere([outcome.mean_vector])[0] > sphere([start])[0]


def test_the_papers_size_takes_seconds(tmp_path):
    began = time.monotonic()
    outcome = search(tmp_path / "trials.jsonl", sphere, start=np.full(960, 3.0), population=24, generations=8)
    assert time.monotonic() - began < 20
    assert sphere([outcome.mean_vector])[0] > sphere([np.full(960, 3.0)])[0]


def test_a_vector_too_long_to_record_is_recorded_by_its_hash(tmp_path):
    trials, start = tmp_path / "trials.jsonl", np.zeros(RECORDED_DIMENSIONS + 1)
    search(trials, start=start, diagonal=True, generations=1)
    fields = {"generation", "index", "fitness", "standardised", "vector_sha256"}
    assert all(json.loads(line).keys() == fields for line in trials.read_text().splitlines())
    with pytest.raises(UserError, match="line 1: recorded vector differs"):
        search(trials, start=start, diagonal=True, seed=8)
    assert search(trials, start=start, diagonal=True, generations=2).generations[0].replayed


def test_blas_threads_do_not_change_the_search():
    def asked(threads):
        evolution = Evolution(np.zeros(200), sigma=0.3, population=19, seed=0, diagonal=False)
        with threadpoolctl.threadpool_limits(limits=threads, user_api="blas"):
            for _ in range(4):
                vectors = evolution.ask()
                evolution.tell(vectors, sphere(vectors))
        return evolution.mean.tobytes()

    assert asked(1) == asked(2)


def test_errors_swallowed_by_nevergrad_surface():
    evolution = Evolution(START, sigma=0.3, population=POPULATION, seed=0, diagonal=False)
    vectors = evolution.ask()

    def broken(*_):
        raise RuntimeError("variance has become negative")

    evolution._es.sm.update = broken  # raised after pycma has counted the generation
    with pytest.raises(RuntimeError, match="swallowed"):
        evolution.tell(vectors, sphere(vectors))


def test_a_restart_is_an_error():
    evolution = Evolution(START, sigma=0.3, population=POPULATION, seed=0, diagonal=False)
    evolution._optimizer._es = None
    with pytest.raises(RuntimeError, match="restarted"):
        evolution.ask()


def test_tell_takes_the_asked_generation_alone():
    evolution = Evolution(START, sigma=0.3, population=POPULATION, seed=0, diagonal=False)
    vectors = evolution.ask()
    fitness = sphere(vectors)
    with pytest.raises(RuntimeError, match="not been told"):
        evolution.ask()
    with pytest.raises(ValueError, match="vector 0 is not the one"):
        evolution.tell(vectors[::-1], fitness)
    with pytest.raises(ValueError, match=f"takes the {POPULATION}"):
        evolution.tell(vectors[1:], fitness[1:])
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="vector 5 in generation 0 is not finite"):
            evolution.tell(vectors, [*fitness[:-1], bad])
    evolution.tell(vectors, fitness)  # none of that was told
    with pytest.raises(ValueError, match="last ask"):
        evolution.tell(vectors, fitness)


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"population": 2}, "population=2"), ({"sigma": 0.0}, "sigma=0.0"), ({"start": np.zeros(1)}, "start")],
)
def test_impossible_settings_are_named(tmp_path, changes, named):
    with pytest.raises(UserError, match=named):
        search(tmp_path / "trials.jsonl", **changes)


def test_standardised_fitness():
    np.testing.assert_allclose(standardise([1, 2, 3]), np.array([-1, 0, 1]) * np.sqrt(1.5), rtol=1e-7)
    assert standardise([0.25] * 3).tolist() == [0, 0, 0]


def test_no_generations_answer_the_start(tmp_path):
    outcome = search(tmp_path / "trials.jsonl", generations=0)
    assert outcome.mean_vector.tobytes() == START.tobytes()
    assert (outcome.sigma, outcome.generations, outcome.seen, outcome.best_fitness) == (0.3, [], [], None)
    assert not (tmp_path / "trials.jsonl").exists()


def test_the_best_seen_are_distinct_and_the_earlier_of_equals_comes_first(tmp_path):
    asked = []

    def evaluate(vectors):
        asked.extend(vectors)
        return rounded_sphere(vectors)

    seen = search(tmp_path / "trials.jsonl", evaluate, keep=5).seen
    fitness = rounded_sphere(asked)
    order = sorted(range(len(asked)), key=lambda i: (-fitness[i], i))[:5]
    assert len({fitness[i] for i in order}) < 5, "ties among the best are what this test is about"
    assert [value for value, _ in seen] == [fitness[i] for i in order]
    assert [vector.tobytes() for _, vector in seen] == [asked[i].tobytes() for i in order]
    again = search(tmp_path / "trials.jsonl", keep=5).seen  # replayed
    assert [vector.tobytes() for _, vector in again] == [vector.tobytes() for _, vector in seen]
    repeated = [(0.5, START), (0.5, START.copy()), (0.25, START + 1)]
    assert [value for value, _ in evolve._best(repeated, 3)] == [0.5, 0.25]


def test_a_budget_of_evaluations_is_never_exceeded():
    assert generation_sizes(24, 20, None, whole=True) == [24] * 20
    assert generation_sizes(24, None, 500, whole=True) == [24] * 20
    assert generation_sizes(24, None, 500, whole=False) == [24] * 20 + [20]
    assert generation_sizes(24, None, 10, whole=False) == [10]
    assert generation_sizes(1, None, 3, whole=False) == [1, 1, 1]
    with pytest.raises(UserError, match="evaluations=10: not one generation of 24"):
        generation_sizes(24, None, 10, whole=True)


def test_the_record_holds_every_trial(tmp_path):
    trials = tmp_path / "deeper" / "trials.jsonl"
    seen = []

    def evaluate(vectors):
        seen.extend(vectors)
        return rounded_sphere(vectors)

    search(trials, evaluate)
    rows = [json.loads(line) for line in trials.read_text().splitlines()]
    assert [(row["generation"], row["index"]) for row in rows] == [
        (g, i) for g in range(GENERATIONS) for i in range(POPULATION)
    ]
    assert [row["vector"] for row in rows] == [vector.tolist() for vector in seen]
    assert [row["fitness"] for row in rows] == rounded_sphere(seen)
    first = [row["standardised"] for row in rows[:POPULATION]]
    assert first == standardise(rounded_sphere(seen[:POPULATION])).tolist()


def test_resume_is_bit_for_bit_after_a_cut_anywhere(tmp_path):
    whole = tmp_path / "whole.jsonl"
    expected = search(whole)
    content = whole.read_bytes()
    lines = content.splitlines(keepends=True)
    cuts = {0}
    for number, line in enumerate(lines):
        end = sum(map(len, lines[: number + 1]))
        cuts |= {end - len(line) // 2, end}  # inside a line, after it
        if number % POPULATION in (0, POPULATION - 1):
            cuts |= {end - len(line) + 1, end - 1}  # after the opening brace, before the newline
    trials = tmp_path / "trials.jsonl"
    for cut in sorted(cuts):
        trials.write_bytes(content[:cut])
        evaluated: list[int] = []
        heard: list[Generation] = []
        outcome = search(
            trials,
            lambda v, e=evaluated: e.append(len(v)) or rounded_sphere(v),
            lambda generation, _, h=heard: h.append(generation),
        )
        kept = content[:cut].count(b"\n") // POPULATION
        assert evaluated == [POPULATION] * (GENERATIONS - kept)
        assert [g.replayed for g in heard] == [g.number < kept for g in heard]
        assert told(heard) == told(outcome.generations) == told(expected.generations)
        assert outcome.mean_vector.tobytes() == expected.mean_vector.tobytes()
        assert (outcome.best_fitness, outcome.seen[0][1].tolist()) == (
            expected.best_fitness,
            expected.seen[0][1].tolist(),
        )
        assert trials.read_bytes() == content, f"cut at byte {cut}"


def test_kill_9_at_several_moments(tmp_path):
    whole, trials = tmp_path / "whole.jsonl", tmp_path / "trials.jsonl"
    generations = 12
    expected = search(whole, generations=generations)

    def slow(vectors):
        time.sleep(0.01)
        return rounded_sphere(vectors)

    for kill in range(1, 5):
        process = multiprocessing.get_context("fork").Process(
            target=search, args=(trials, slow), kwargs={"generations": generations}
        )
        process.start()
        assert process.pid
        deadline = time.monotonic() + 20
        while (not trials.exists() or trials.read_bytes().count(b"\n") < 2 * kill * POPULATION) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.001)
        time.sleep(0.004 * kill)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        done = trials.read_bytes().count(b"\n") // POPULATION
        assert 2 * kill <= done < generations
    outcome = search(trials, generations=generations)
    assert sum(g.replayed for g in outcome.generations) == done
    assert told(outcome.generations) == told(expected.generations)
    assert trials.read_bytes() == whole.read_bytes()


def test_more_generations_go_on_and_fewer_leave_the_record(tmp_path):
    trials = tmp_path / "trials.jsonl"
    short = search(trials, generations=2)
    longer = search(trials)
    assert told(longer.generations)[:2] == told(short.generations)
    content = trials.read_bytes()
    assert told(search(trials, generations=2).generations) == told(short.generations)
    assert trials.read_bytes() == content


@pytest.mark.parametrize("changes", [{"seed": 8}, {"sigma": 0.2}, {"population": 7}, {"population": 5}])
def test_another_searchs_record_is_refused(tmp_path, changes):
    trials = tmp_path / "trials.jsonl"
    search(trials)
    content = trials.read_bytes()
    with pytest.raises(UserError, match=r"trials\.jsonl, line \d+: recorded vector differs.*delete .*trials\.jsonl"):
        search(trials, **changes)
    assert trials.read_bytes() == content


@pytest.mark.parametrize(
    ("line", "tamper", "message"),
    [
        (8, lambda row: row | {"vector_sha256": "0" * 64}, "line 8: recorded vector differs"),
        (8, lambda row: row | {"vector": [0.0, *row["vector"][1:]]}, "line 8: recorded vector differs"),
        (8, lambda row: row | {"index": 3}, "line 8: recorded vector differs"),
        (3, lambda row: row | {"fitness": row["fitness"] + 9}, "line 7: recorded vector differs"),  # asked otherwise
        (3, lambda row: row | {"fitness": math.nan}, "line 3: fitness nan"),
        (3, lambda row: row | {"fitness": None}, "line 3: fitness None"),
        (3, lambda row: [row], "line 3: recorded vector differs"),
    ],
)
def test_a_tampered_record_is_refused(tmp_path, line, tamper, message):
    trials = tmp_path / "trials.jsonl"
    search(trials)
    lines = trials.read_text().splitlines()
    lines[line - 1] = json.dumps(tamper(json.loads(lines[line - 1])))
    trials.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=message):
        search(trials)


def test_a_line_that_is_not_json_is_named(tmp_path):
    trials = tmp_path / "trials.jsonl"
    search(trials)
    lines = trials.read_bytes().splitlines(keepends=True)
    lines[4] = b"\x00\xff\n"
    trials.write_bytes(b"".join(lines))
    with pytest.raises(UserError, match="line 5: not valid JSON"):
        search(trials)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_generation_with_a_fitness_that_is_not_finite_is_not_recorded(tmp_path, bad):
    trials = tmp_path / "trials.jsonl"
    search(trials, generations=1)
    content = trials.read_bytes()
    with pytest.raises(ValueError, match="vector 0 in generation 1 is not finite"):
        search(trials, lambda vectors: [bad, *rounded_sphere(vectors)[1:]])
    with pytest.raises(ValueError, match=f"takes the {POPULATION}"):
        search(trials, lambda vectors: rounded_sphere(vectors)[1:])
    assert trials.read_bytes() == content
