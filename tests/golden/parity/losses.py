"""Masked, weighted cross entropy of the fine-tuning sets."""

import torch


def weighted(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> tuple:
    """Mean of the cross entropy under `weights` and their sum. Logits `[B, K, T, V]`, targets and weights `[B, K, T]`.
    Positions of weight zero take no part, whatever their logits are."""
    used = weights > 0
    if not used.any():
        return torch.zeros(()), 0.0
    loss = torch.nn.functional.cross_entropy(logits[used].float(), targets[used], reduction="none")
    total = weights[used].sum()
    return (loss * weights[used]).sum() / total, float(total)


def text_weights(targets: torch.Tensor, mask: torch.Tensor, padding_weight: float, padding=(3, 0)) -> torch.Tensor:
    weights = mask.float()
    for token in padding:
        weights = torch.where(targets == token, weights * padding_weight, weights)
    return weights


def audio_weights(mask: torch.Tensor, multiplier: float, codebooks=(0,)) -> torch.Tensor:
    weights = mask.float().clone()
    for codebook in codebooks:
        weights[:, codebook] *= multiplier
    return weights
