"""finetune/d_optim: OneCycle tables and twenty steps of AdamW with clipping, from torch.optim."""

import random
from pathlib import Path

import torch
from torch.optim.lr_scheduler import OneCycleLR

from parity.files import finite, generator, normal, save, save_json

SEED = 20260403
EDGES = [(10, 0.05, 1e-3), (20, 0.05, 1e-3), (40, 0.05, 1e-3), (5, 1.0, 1e-3), (7, 0.0, 1e-3), (1, 0.05, 1e-3)]
TABLES = [(2000, 0.05, 2e-6), (3000, 0.05, 2e-6), (201, 0.1, 1e-6), (100, 0.05, 1e-4), (20, 0.25, 0.05)]
STEPS, LR, BETAS, EPS, DECAY, NORM, PCT = 20, 0.05, (0.9, 0.95), 1e-8, 0.1, 1.0, 0.25
PROBLEM = ("y=2*(X A^T) B^T; loss=mean((y-Y)^2)+0.05*sum(E^2)+0.01*sum(B^2); "
           "micro-batch m uses X[m],Y[m]")


def make(out: Path, shape, seed: int) -> None:
    folder = out / "finetune/d_optim"
    r = random.Random(seed)
    drawn = [(r.randint(30, 4000), r.choice([0.02, 0.1, 0.3, 0.5]), 10 ** r.uniform(-6, -2)) for _ in range(2)]
    tables = [table(*arguments) for arguments in TABLES + EDGES + drawn]
    save_json(folder / "onecycle.json", {
        "anneal": "cos", "base_momentum": 0.85, "max_momentum": 0.95, "cycle_momentum": True, "div_factor": 25.0,
        "final_div_factor": 10000.0, "tables": tables,
    })
    g = generator(seed, "trace")
    start = {"A0": normal(g, 4, 6, std=0.5), "B0": normal(g, 5, 4, std=0.5), "E0": normal(g, 3),
             "X": normal(g, 2, 12, 6), "Y": normal(g, 2, 12, 5, std=3)}
    tensors, traces = dict(start), {}
    for kind, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        for micro in (1, 2):
            name = f"{kind}_{micro}"
            steps, found = trace(start, dtype, micro)
            traces[name] = steps
            tensors |= {f"{name}.{key}": value for key, value in found.items()}
    save(folder / "trace.safetensors", tensors)
    save_json(folder / "trace.json", {
        "problem": PROBLEM, "traces": traces,
        "optimiser": {"lr": LR, "betas": list(BETAS), "eps": EPS, "weight_decay": DECAY, "max_norm": NORM,
                      "schedule": {"total_steps": STEPS, "pct_start": PCT}},
    })


def table(total: int, pct: float, peak: float) -> dict:
    """Rate and momentum in force at chosen steps (counted from 0), or the error that torch raises."""
    record = {"total_steps": total, "pct_start": pct, "max_lr": peak}
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=peak, betas=BETAS)
    try:
        schedule = OneCycleLR(optimizer, max_lr=peak, total_steps=total, pct_start=pct)
        rates = []
        for step in range(total):
            group = optimizer.param_groups[0]
            rates.append((finite(group["lr"]), group["betas"][0]))
            optimizer.step()
            schedule.step()
    except ZeroDivisionError as error:
        return record | {"error": type(error).__name__}
    top = round(pct * total)
    near = [0, 1, 2, top - 2, top - 1, top, top + 1, total - 2, total - 1]
    chosen = range(total) if total <= 100 else sorted({s for s in near if 0 <= s < total} | set(range(0, total, total // 60)))
    ends = [{"end_step": phase["end_step"]} for phase in schedule._schedule_phases]
    return record | {"step_index": list(chosen), "lr": [rates[s][0] for s in chosen],
                     "beta1": [rates[s][1] for s in chosen], "phases": ends}


def loss_of(parameters: dict, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The products run in the parameters' dtype, the loss in f32."""
    out = 2 * (x.to(parameters["A"].dtype) @ parameters["A"].T) @ parameters["B"].T
    squares = lambda value: value.float().pow(2)
    return squares(out.float() - y).mean() + 0.05 * squares(parameters["E"]).sum() + 0.01 * squares(parameters["B"]).sum()


def trace(start: dict, dtype, micro: int) -> tuple:
    """Masters in f32; forward, backward and the sums over micro-batches in `dtype`; clipping and update in f32."""
    masters = {n: torch.nn.Parameter(start[f"{n}0"].clone()) for n in "ABE"}
    optimizer = torch.optim.AdamW(masters.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    schedule = OneCycleLR(optimizer, max_lr=LR, total_steps=STEPS, pct_start=PCT)
    steps, rows = [], {}
    for step in range(1, STEPS + 1):
        group = optimizer.param_groups[0]
        record = {"step": step, "lr": group["lr"], "beta1": group["betas"][0]}
        working = {n: m.detach().to(dtype).requires_grad_(True) for n, m in masters.items()}
        total = 0.0
        for m in range(micro):
            loss = loss_of(working, start["X"][m], start["Y"][m])
            loss.backward()
            total += float(loss.detach())
        for n, master in masters.items():
            gradient = working[n].grad
            master.grad = (gradient / micro if micro > 1 else gradient).float()
        norm = torch.nn.utils.clip_grad_norm_(masters.values(), NORM)
        gradients = {n: m.grad.clone() for n, m in masters.items()}
        optimizer.step()
        if step < STEPS:
            schedule.step()
        steps.append(record | {"loss": finite(total / micro), "grad_norm_before_clip": float(norm)})
        for n, master in masters.items():
            state = optimizer.state[master]
            note(rows, {n: master.detach(), f"g{n}": gradients[n]})
            if n != "E":
                note(rows, {f"m{n}": state["exp_avg"], f"v{n}": state["exp_avg_sq"]})
    return steps, {name: torch.stack(values) for name, values in rows.items()}


def note(rows: dict, values: dict) -> None:
    for name, value in values.items():
        rows.setdefault(name, []).append(value.clone())
