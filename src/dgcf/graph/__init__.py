"""From user–item interactions to the propagation operator that every graph model uses."""

from dgcf.graph.bipartite import adjacency, interaction_matrix
from dgcf.graph.crosshop.build import cross_hop
from dgcf.graph.edge_dropout import EdgeDrop, MessageDrop, draw_keys
from dgcf.graph.neighbour_sampling import NeighbourDraw
from dgcf.graph.normalize import laplacian
from dgcf.graph.propagation import Propagation, build_propagation
from dgcf.graph.spec import PropagationSpec

__all__ = [
    "EdgeDrop",
    "MessageDrop",
    "NeighbourDraw",
    "Propagation",
    "PropagationSpec",
    "adjacency",
    "build_propagation",
    "cross_hop",
    "draw_keys",
    "interaction_matrix",
    "laplacian",
]
