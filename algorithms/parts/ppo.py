"""What PPO's multi-agent forms share (Schulman et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from algorithms.parts.targets import masked_mean
from harness.algorithm import Metrics
from harness.types import Batch


def normalised(advantage: Tensor, mask: Tensor) -> Tensor:
    """``advantage`` with mean 0 and variance 1 over where ``mask`` is 1."""
    mean = masked_mean(advantage, mask)
    std = masked_mean((advantage - mean) ** 2, mask).sqrt()
    return (advantage - mean) / (std + 1e-8)


def clipped_objective(
    pi: Distribution, batch: Batch, advantage: Tensor, clip_ratio: float, mask: Tensor
) -> tuple[Tensor, Metrics]:
    """Eq. 7, L_clip, with each agent's own ratio, and metrics; ``advantage`` [B,T,N] or [B,T,1], ``mask`` [B,T,N]."""
    ratio = (pi.log_prob(batch.action) - batch.log_prob).exp()
    clipped = ratio.clamp(1 - clip_ratio, 1 + clip_ratio)
    gain = masked_mean(torch.min(ratio * advantage, clipped * advantage), mask)
    outside = masked_mean(((ratio - 1).abs() > clip_ratio).to(ratio.dtype), mask)
    entropy = masked_mean(pi.entropy(), mask)
    return gain, {"loss": -gain, "entropy": entropy, "ratio": masked_mean(ratio, mask), "clipped": outside}
