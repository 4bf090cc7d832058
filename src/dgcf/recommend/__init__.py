"""The recommend room: raw ids in, recommendations out, for known users and new ones, with reasons."""

from dgcf.recommend.explain import Explanation, Part
from dgcf.recommend.loading import load
from dgcf.recommend.recommender import Recommender
from dgcf.recommend.snapshot import Snapshot
from dgcf.recommend.table import Table

__all__ = ["Explanation", "Part", "Recommender", "Snapshot", "Table", "load"]
