"""What each diagnostic is: name, formula, source and how to read it. Read by docs and reports; no torch here.

Metrics in ``cdm.csv`` are named ``<estimator>/<quantity>`` where they concern a gradient, else ``<group>/<quantity>``.
"""

from __future__ import annotations

from dataclasses import dataclass

EPSILONS: tuple[float | str, ...] = (0.0, 0.1, 0.25, 0.5, 1.0, "greedy")
"""Teammates at (1-eps) pi + eps uniform; "greedy": each teammate's likeliest action."""

COLUMNS = ("env_steps", "metric", "value")
"""Of ``cdm.csv``."""

ESTIMATORS = {
    "own": "the method's own: the derivative of its policy loss by its policy network's outputs",
    "joint": "the score-function gradient Q_tot psi with the method's own joint value, by its policy's logits",
    "true": "the score-function gradient Q psi with the task's true joint value (enumerable tasks only)",
}


@dataclass(frozen=True)
class Diagnostic:
    """One measured quantity."""

    title: str
    formula: str
    source: str
    reading: str
    """What a reader may conclude, in plain words."""
    low_is_good: bool | None = None
    """None where neither end is good by itself."""


_KUBA = "Kuba et al. 2021, arXiv 2108.08612"

DIAGNOSTICS: dict[str, Diagnostic] = {
    "teammate_share": Diagnostic(
        "Teammate share of the gradient's variance",
        "T / (T + O),  T = E_s[Var_{u^-i}(E_{u^i} g)],  O = E_{s,u^-i}[Var_{u^i} g], each summed over agents",
        _KUBA,
        "How much of the noise in an agent's update comes from what its teammates happened to do. 0: none. No "
        "baseline that an agent may use removes this part.",
        True,
    ),
    "gap_share": Diagnostic(
        "Centralised-decentralised gap",
        "(Var[g_C] - Var[g_D]) / Var[g_C],  Var[g_C] - Var[g_D] = E[|psi^i|^2 Var_{u^-i} Q]",
        _KUBA,
        "How much of the gradient's variance would vanish if the critic averaged over teammates' actions instead of "
        "seeing them. Additive values have a gap too, though their teammate share is 0.",
        True,
    ),
    "cosine": Diagnostic(
        "Teammate perturbation: cosine",
        "cos(E g with teammates at (1-eps) pi + eps uniform, E g with teammates at pi)",
        "this harness, after the mechanism described by Wang et al. 2021, arXiv 2007.12322",
        "Whether an agent is still told the same when its teammates explore or err. 1: the same direction; 0: "
        "unrelated; below 0: told the opposite.",
        False,
    ),
    "sign_flip": Diagnostic(
        "Teammate perturbation: sign flips",
        "share of gradient components whose sign differs from that at eps = 0",
        "this harness",
        "How often an action is pushed up that would have been pushed down with unperturbed teammates, or the reverse.",
        True,
    ),
    "snr": Diagnostic(
        "Signal to noise",
        "|E g|^2 / Var g",
        "Rainforth et al. 2018, arXiv 1802.04537 (as a measure of gradient estimators)",
        "How much of an update is direction and how much is chance. It falls near a stationary point as well.",
        None,
    ),
    "igm/violation": Diagnostic(
        "IGM violation rate",
        "P_s[ max_u Q_tot(s,u) > Q_tot(s, (argmax Q_i)_i) ]",
        "Son et al. 2019, arXiv 1905.05408, eq. 1",
        "How often acting greedily on one's own utility misses the joint action that the critic itself thinks best.",
        True,
    ),
    "igm/policy_violation": Diagnostic(
        "Policy misses the critic's argmax",
        "P_s[ max_u Q_tot(s,u) > Q_tot(s, (argmax pi_i)_i) ]",
        "this harness, IGM's condition asked of policies",
        "How often the likeliest joint action of the policies is not the one that the critic thinks best.",
        True,
    ),
    "representation/error": Diagnostic(
        "Representation error",
        "sqrt( mean over s, u of (Q_tot - Q)^2 )",
        "Castellini et al. 2019, arXiv 1902.07497",
        "How far the joint value is from the truth over all joint actions, in units of reward.",
        True,
    ),
    "representation/error_on_policy": Diagnostic(
        "Representation error, on policy",
        "sqrt( E_{s, u ~ pi}(Q_tot - Q)^2 )",
        "Castellini et al. 2019, arXiv 1902.07497",
        "The same where the policy goes: a method may be right where it plays and wrong elsewhere.",
        True,
    ),
    "ends/optimal": Diagnostic(
        "Greedy play is the optimum",
        "1 if greedy play gives the optimum in every state the task begins in",
        "Claus and Boutilier 1998",
        "Where the greedy policy stands at this point of training.",
        False,
    ),
    "ends/shadowed": Diagnostic(
        "Relative overgeneralisation",
        "1 if greedy play is not optimal, yet no agent alone can gain",
        "Wiegand 2003; Wei and Luke 2016",
        "The team has settled at an equilibrium that a better one shadows: its share over seeds is reported.",
        True,
    ),
    "degradation/uniform": Diagnostic(
        "Degradation: one agent uniform",
        "R(team) - mean_i R(team with agent i uniform-random)",
        "this harness",
        "What one agent's random play costs the team at once, with nobody learning.",
        None,
    ),
    "degradation/earlier": Diagnostic(
        "Degradation: one agent from an earlier checkpoint",
        "R(team) - mean_i R(team with agent i's earlier policy)",
        "this harness",
        "How much the team depends on partners as good as those it has now.",
        None,
    ),
    "amplification/factor": Diagnostic(
        "Error amplification factor",
        "(R(control) - R(control's agent with the others that learned beside the bad one)) / "
        "(R(control) - R(control with the agent uniform))",
        "this harness",
        "Whether one agent's bad spell in training spoiled the others. 0: they learned on unharmed; 1: they lost as "
        "much for good as the spell cost while it lasted.",
        True,
    ),
}


def diagnostic(metric: str) -> Diagnostic | None:
    """The definition of a metric of ``cdm.csv``: ``own/teammate_share``, ``joint/cosine@0.25``, ``igm/violation``."""
    if metric in DIAGNOSTICS:
        return DIAGNOSTICS[metric]
    estimator, _, quantity = metric.partition("/")
    return DIAGNOSTICS.get(quantity.partition("@")[0]) if estimator in ESTIMATORS else None
