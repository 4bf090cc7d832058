"""The contract of all models of the catalogue, and how the variants of DGCF differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch import Tensor

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.graph import Propagation, build_propagation
from dgcf.models import CATALOG, DGCF, DGCFConfig, DropSchedule, GraphModel, LightGCN, LightGCNConfig, entry
from dgcf.models.layers import LocalityGates
from dgcf.models.weighted import Dense, WeightedModel
from dgcf.random import permutation, uniform
from dgcf.ranking.user_rules import ConstantRow, ItemSums, LeastSquares, LinearLayers, UserRule


def random_matrix(seed: int, n_users: int = 9, n_items: int = 12, density: float = 0.3) -> csr_array:
    drawn = uniform(seed, "test/matrix", n_users * n_items).reshape(n_users, n_items) < density
    drawn[0, 0] = True
    return csr_array(drawn.astype(float))


def build(name: str, matrix: csr_array, seed: int = 0, **more: Any) -> tuple[GraphModel, Propagation | None]:
    found = entry(name)
    known = {"dim": 4, "layers": 3, **more}
    config = replace(found.config, **{key: value for key, value in known.items() if key in found.keys})
    spec = config.spec()
    return found.build(*matrix.shape, config, seed), None if spec is None else build_propagation(matrix, spec)


def float64(model: GraphModel, propagation: Propagation | None) -> tuple[GraphModel, Propagation | None]:
    return model.double(), None if propagation is None else propagation.to(dtype=torch.float64)


def readouts(name: str) -> list[str]:
    """Those that the model can be asked for; of a model without a choice its only one."""
    if "readout" not in entry(name).keys:
        return ["only"]
    return ["mean", "last", *(["concat"] if issubclass(entry(name).kind, WeightedModel) else [])]


@pytest.mark.parametrize("name", [name for name in CATALOG if not entry(name).solved])
class TestContract:
    def test_shapes(self, name: str) -> None:
        for readout in readouts(name):
            model, propagation = build(name, random_matrix(0), readout=readout)
            assert model.width == (4 if readout != "concat" else 12 if name == "gc-mc" else 16)
            assert model(propagation).shape == (21, model.width)
            found = model.embed(propagation)
            assert found.users.shape == (9, model.width)
            assert found.items.shape == (12, model.width)
            assert not found.users.requires_grad

    @pytest.mark.parametrize("dropout", [0.0, 0.4])
    @pytest.mark.parametrize("n_rows", [1, 20, 90])
    def test_rows_equal_those_of_all_nodes(self, name: str, dropout: float, n_rows: int) -> None:
        """Few rows are cut out of the last layer, many are taken from all of it.

        To the last bit, unless dense products are in between, which sum in another order for another shape.
        """
        rows = torch.tensor(permutation(2, "test/rows", 100)[:n_rows])
        drop = DropSchedule(0.0 if name == "sage" else dropout, seed=3, step=5)  # sage draws neighbours, not edges
        for readout in readouts(name):
            model, propagation = build(name, random_matrix(1, 40, 60), dim=16, readout=readout, message_dropout=dropout)
            for precision in (1e-5, 1e-12):
                found, whole = model(propagation, rows=rows, drop=drop), model(propagation, drop=drop)[rows]
                if any(isinstance(part, Dense) for part in model.modules()):
                    torch.testing.assert_close(found, whole, rtol=precision, atol=precision)
                else:
                    assert torch.equal(found, whole)
                model, propagation = float64(model, propagation)

    def test_gradient_through_rows_equals_that_of_all_nodes(self, name: str) -> None:
        model, propagation = float64(*build(name, random_matrix(1, 20, 30)))
        rows = torch.tensor([0, 7, 21, 49])  # of 50: few enough to be cut out
        weights = torch.arange(4.0 * model.width, dtype=torch.float64).reshape(4, -1)
        gradients = []
        for final in (model(propagation, rows=rows), model(propagation)[rows]):
            parameters = list(model.parameters())
            gradients.append(torch.autograd.grad((final * weights).sum(), parameters))
        for restricted, whole in zip(*gradients, strict=True):
            torch.testing.assert_close(restricted, whole, rtol=1e-13, atol=1e-12)

    def test_gradcheck(self, name: str) -> None:
        model, propagation = float64(*build(name, random_matrix(2, 5, 6), dim=3, layers=2, message_dropout=0.2))
        rows = torch.tensor([0, 3, 4, 9])
        names = [key for key, _ in model.named_parameters()]

        def final(*parameters: Tensor) -> Tensor:
            given = dict(zip(names, parameters, strict=True))
            drop = DropSchedule(0.0 if name == "sage" else 0.3, 1, 2)
            result = torch.func.functional_call(model, given, (propagation, rows, drop))
            assert isinstance(result, Tensor)
            return result

        assert torch.autograd.gradcheck(final, tuple(model.parameters()))

    def test_initial_state_depends_on_the_seed_alone(self, name: str) -> None:
        first, again, other = (build(name, random_matrix(0), seed)[0].state_dict() for seed in (7, 7, 8))
        assert all(torch.equal(first[key], again[key]) for key in first)
        assert not any(torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", [name for name in CATALOG if "message_dropout" in entry(name).keys])
class TestMessageDropout:
    def test_message_dropout_differs_between_steps_and_is_off_when_ranking(self, name: str) -> None:
        model, propagation = build(name, random_matrix(1), message_dropout=0.4, fanout="all")
        without, _ = build(name, random_matrix(1), message_dropout=0.0, fanout="all")
        finals = [model(propagation, drop=DropSchedule(0.0, 3, step)) for step in (1, 2, 1)]
        assert torch.equal(finals[0], finals[2])
        assert not torch.equal(finals[0], finals[1])
        assert torch.equal(model(propagation), without(propagation))
        assert torch.equal(model(propagation), without(propagation, drop=DropSchedule(0.0, 3, 1)))


def test_message_dropout_depends_on_seed_step_layer_node_and_column() -> None:
    rows = torch.arange(500)
    kept = DropSchedule(0.0, 1, 2).messages(3, 0.3, rows, 40)
    assert kept.shape == (500, 40)
    assert kept.float().mean().item() == pytest.approx(0.7, abs=5 * np.sqrt(0.21 / 20_000))
    others = [
        DropSchedule(0.0, 2, 2).messages(3, 0.3, rows, 40),
        DropSchedule(0.0, 1, 3).messages(3, 0.3, rows, 40),
        DropSchedule(0.0, 1, 2).messages(4, 0.3, rows, 40),
        kept.roll(1, dims=0),
        kept.roll(1, dims=1),
    ]
    for other in others:  # independent draws agree in .7² + .3² of the places
        assert (kept == other).float().mean().item() == pytest.approx(0.58, abs=5 * np.sqrt(0.25 / 20_000))
    some = torch.tensor([499, 3, 3])
    assert torch.equal(DropSchedule(0.0, 1, 2).messages(3, 0.3, some, 40), kept[some])


def test_layer0_is_xavier_uniform_for_users_and_items_separately() -> None:
    model = LightGCN(300, 700, LightGCNConfig(dim=100))
    for block, rows in ((model.layer0[:300], 300), (model.layer0[300:], 700)):
        bound = np.sqrt(6 / (rows + 100))
        assert block.abs().max().item() == pytest.approx(bound, rel=1e-3)
        assert block.std().item() == pytest.approx(bound / np.sqrt(3), rel=1e-2)


def test_gates_start_near_one_half_and_are_per_layer_unless_shared() -> None:
    own, shared = (LocalityGates(500, 3, shared=shared) for shared in (False, True))
    assert own.logits.shape == (3, 500)
    assert shared.logits.shape == (1, 500)
    assert (torch.sigmoid(own.logits) - 0.5).abs().max() < 0.03
    assert not torch.equal(own.logits[0], own.logits[1])
    x = torch.ones(500, 2)
    assert torch.equal(shared(0, x), shared(2, x))
    assert not torch.equal(own(0, x), own(2, x))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from(["mean", "last"]))
def test_without_gates_cross_hop_and_self_term_dgcf_is_lightgcn_bit_for_bit(
    seed: int, layers: int, readout: Any
) -> None:
    matrix = random_matrix(seed)
    stripped = DGCFConfig(dim=4, layers=layers, readout=readout, gates="none", cross="none", self_loop=False)
    light = LightGCNConfig(dim=4, layers=layers, readout=readout)
    ours, theirs = DGCF(9, 12, stripped, seed), LightGCN(9, 12, light, seed)
    of_ours = ours(build_propagation(matrix, stripped.spec()))
    of_theirs = theirs(build_propagation(matrix, light.spec()))
    assert torch.equal(of_ours, of_theirs)
    gradients = [
        torch.autograd.grad(final.square().sum(), [m.layer0])[0] for final, m in ((of_ours, ours), (of_theirs, theirs))
    ]
    assert torch.equal(*gradients)


@pytest.mark.parametrize("part", [{"gates": "per-layer"}, {"cross": "filtered"}, {"self_loop": True}])
def test_each_part_of_dgcf_changes_the_embeddings(part: dict[str, Any]) -> None:
    matrix = random_matrix(4)
    stripped: dict[str, Any] = {"dim": 4, "gates": "none", "cross": "none", "self_loop": False, "epsilon": 0.05}
    without, having = DGCFConfig(**stripped), DGCFConfig(**{**stripped, **part})
    finals = [DGCF(9, 12, config)(build_propagation(matrix, config.spec())) for config in (without, having)]
    assert not torch.allclose(*finals)


@pytest.mark.parametrize("name", ["dgcf", "dgcf-chp", "dgcf-la", "dgcf-sl"])
def test_every_variant_keeps_the_self_term_by_default(name: str) -> None:
    config = entry(name).config
    assert config.spec().self_loop
    assert not replace(config, self_loop=False).spec().self_loop


def test_variants_differ_in_settings_alone() -> None:
    changed = {
        name: {key for key in entry(name).keys if getattr(entry(name).config, key) != getattr(DGCFConfig(), key)}
        for name in ("dgcf-chp", "dgcf-la", "dgcf-sl")
    }
    assert changed == {"dgcf-chp": {"gates"}, "dgcf-la": {"cross"}, "dgcf-sl": {"gates"}}
    assert entry("dgcf-chp").config.spec().cross == "filtered"
    assert {entry(name).kind for name in changed} == {DGCF}


def test_edge_dropout_is_drawn_per_layer_or_per_step() -> None:
    per_layer, per_step = DropSchedule(0.1, 1, 2), DropSchedule(0.1, 1, 2, per_layer=False)
    assert per_layer.at(0) != per_layer.at(1)
    assert per_step.at(0) == per_step.at(1)
    assert DropSchedule(0.0, 1, 2).at(0) is None


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("gcn", {"dim": 0}, "dim is 0, expected from 1 to 8192"),
        ("gcn", {"layers": 65}, "layers is 65, expected from 1 to 64"),
        ("gcn", {"activation": "rely"}, "activation is 'rely', expected leaky-relu or relu"),
        ("gc-mc", {"readout": "sum"}, "readout is 'sum', expected mean or last or concat"),
        ("ngcf", {"message_dropout": 1.0}, "message_dropout is 1.0, expected from 0 to 0.99"),
        ("sgc", {"layers": 0}, "layers is 0, expected from 1 to 64"),
        ("spectralcf", {"frequencies": 0}, "frequencies is 0, expected from 1 to"),
        ("sage", {"fanout": 0}, "fanout is 0, expected from 1 to 10000"),
        ("sage", {"fanout": "al"}, "fanout is 'al', expected all; did you mean 'all'"),
    ],
)
def test_invalid_settings_are_refused(name: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        replace(entry(name).config, **settings)


def test_sage_refuses_edge_dropout_with_sampled_neighbours() -> None:
    model, propagation = build("sage", random_matrix(0))
    with pytest.raises(ConfigError, match=r"no edge is left to drop; set edge_dropout=0 or fanout=all"):
        model(propagation, drop=DropSchedule(0.1, 0, 0))


def test_unknown_model_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"there is no model 'lightgnc'; did you mean 'lightgcn'\?"):
        entry("lightgnc")
    with pytest.raises(ConfigError, match="there are dgcf, dgcf-chp"):
        entry("zzzzzzz")


LINEAR = ("dgcf", "dgcf-chp", "dgcf-la", "dgcf-sl", "lightgcn", "bpr-mf")
RULES: dict[str, UserRule | None] = {
    **dict.fromkeys(LINEAR, LinearLayers()),
    **dict.fromkeys(("gcn", "gcn-jk", "gc-mc", "ngcf", "sgc", "spectralcf", "sage", "random")),
    "popularity": ConstantRow(),
    "ials": LeastSquares(10.0, 50.0),
}


@pytest.mark.parametrize("name", RULES)
def test_models_declare_how_they_represent_users(name: str) -> None:
    assert entry(name).build(4, 5).user_rule == RULES[name]


@pytest.mark.parametrize("name", ["ease", "item-knn", "gf-cf", "bspm", "chebycf"])
def test_models_of_item_weights_sum_them(name: str) -> None:
    assert isinstance(entry(name).build(4, 5).ranking(Pairs.empty(4, 5)).user_rule, ItemSums)
