"""Recommend items by raw ids, to known and new users, with explanations; save and load recommenders."""

from dgcf.recommend.explain import Explanation, Part
from dgcf.recommend.loading import load
from dgcf.recommend.recommender import Recommender
from dgcf.recommend.rules import Rules
from dgcf.recommend.snapshot import Snapshot
from dgcf.recommend.table import Table

__all__ = ["Explanation", "Part", "Recommender", "Rules", "Snapshot", "Table", "load"]
