"""SMAC and SMACv2 scenarios of the SMAX engine, as data: nothing heavy is imported to list them.

Random and scripted are shares of episodes won by uniform legal actions and by the enemy's own heuristic playing the
allies, as ``python -m suites.smac.references`` prints them: 4,096 episodes each of 3m, 8m, 2s3z, 3s5z, smacv2_5_units
and smacv2_10_units (95% interval of a half: +- 0.015), 1,024 of the others (+- 0.03).
"""

from __future__ import annotations

from typing import NamedTuple

from harness.types import Discrete, Spec

EPISODE_LIMIT = 100
"""Steps of every scenario."""


class Map(NamedTuple):
    """One scenario."""

    allies: int
    enemies: int
    units: str
    """Types of the allies, then of the enemies where they differ."""
    random: float
    scripted: float
    smacv2: bool = False
    """Positions and unit types drawn anew each episode."""

    def spec(self) -> Spec:
        """Its sizes on SMAX.

        An observation has 13 numbers for each other unit and 10 for the unit itself, the state 12 for each unit.
        Actions are four moves, stop, and an attack on each enemy.
        """
        units = self.allies + self.enemies
        actions = Discrete(5 + self.enemies)
        return Spec(self.allies, 13 * (units - 1) + 10, 12 * units, EPISODE_LIMIT, actions, ("won",))


MAPS: dict[str, Map] = {
    "3m": Map(3, 3, "marines", random=0.0, scripted=0.501),
    "8m": Map(8, 8, "marines", random=0.0, scripted=0.502),
    "25m": Map(25, 25, "marines", random=0.0, scripted=0.514),
    "2s3z": Map(5, 5, "2 stalkers, 3 zealots", random=0.0, scripted=0.481),
    "3s5z": Map(8, 8, "3 stalkers, 5 zealots", random=0.0, scripted=0.415),
    "5m_vs_6m": Map(5, 6, "marines", random=0.0, scripted=0.001),
    "10m_vs_11m": Map(10, 11, "marines", random=0.0, scripted=0.033),
    "27m_vs_30m": Map(27, 30, "marines", random=0.0, scripted=0.006),
    "3s5z_vs_3s6z": Map(8, 9, "3 stalkers, 5 zealots against 3 stalkers, 6 zealots", random=0.0, scripted=0.002),
    "3s_vs_5z": Map(3, 5, "stalkers against zealots", random=0.0, scripted=0.0),
    "6h_vs_8z": Map(6, 8, "hydralisks against zealots", random=0.0, scripted=0.0),
    "smacv2_5_units": Map(5, 5, "drawn from six types", random=0.002, scripted=0.492, smacv2=True),
    "smacv2_10_units": Map(10, 10, "drawn from six types", random=0.0, scripted=0.504, smacv2=True),
    "smacv2_20_units": Map(20, 20, "drawn from six types", random=0.0, scripted=0.505, smacv2=True),
}
