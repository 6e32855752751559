"""How every number of a report was made, in sentences."""

from __future__ import annotations

from harness.analysis.curves import AXES
from harness.analysis.study import Study


def sentences(study: Study) -> list[str]:
    """The report's last section; docs/statistics.md says it at length."""
    o = study.options
    made = [
        "One number a seed: episodes are averaged first, and only seeds are resampled. "
        f"Methods are compared at equal {AXES[o.match]}.",
        f"Intervals are 95% percentile bootstrap intervals ({o.resamples:,} resamples, seed {o.seed}) with percentiles "
        "widened for small samples (Hesterberg 2015). Over several tasks resampling is stratified by task.",
        f"Learning curves: {o.statistic} over seeds at the steps that all seeds of a method have; the band is "
        "pointwise.",
        "IQM: mean of the middle half (a quarter of the values is left out at each end, rounded down).",
        "P(A > B): share of pairs of seeds in which A is higher, ties half, and over tasks its mean, with "
        "Newcombe's score "
        "interval. (A bootstrap has no width where one method's seeds are all above the other's.)",
        "Tests: Welch's t and Mann-Whitney U, two-sided, p adjusted by Holm over all comparisons of the report "
        ""
        "(each test a family). Seeds missing: two-sample t test, 80% power at the observed standardised difference and "
        "at the level that Holm's procedure holds the comparison against.",
        "With fewer than three seeds nothing is estimated but the value itself.",
        "Wall and CPU time and energy to a score are of training alone. CPU energy is that of the packages, idle power "
        "included, times a trial's share of the machine's busy CPU time; GPU energy is the GPU's counter, split evenly "
        "over the processes on it.",
    ]
    if study.overall is not None:
        made.append(
            "Normalised scores use the bounds that the suite declares for a task, never the results. Median: "
            "over tasks, of "
            "the mean over seeds. Optimality gap: mean shortfall to 1. Numbers over tasks use the tasks that all "
            "methods have."
        )
    if study.overall is not None and study.overall.ranks is not None:
        made.append("Ranks: Friedman's test on the tasks' mean scores and Nemenyi's critical difference at 5%.")
    return made
