"""PyTorch's side of a comparison: trains a Hugging Face folder on a text file, on the CPU, in fp32.

Same rows as `mt train --no-shuffle`: the text is encoded whole without special tokens and cut into rows of --seq-len
ids, the last incomplete row dropped; position i of a row is scored against i + 1, so a row has seq-len - 1 targets.
One line of JSON a step: step, loss (per target token, before the step's update), grad_norm (before clipping), lr,
tokens, seconds, tokens_per_s. The last line sums up: medians after --skip steps.

Attention is torch's scaled_dot_product_attention, the optimizer torch.optim.AdamW (--adamw fused is the fastest of the
three on a CPU), decay on tensors with two or more dimensions. Threads: --threads sets torch's intra-op pool, OMP and
MKL alike; one inter-op thread.

--mm prints, instead of training, the rate of torch.mm on the model's matrix products (forward, gradient of the input,
gradient of the weight).
"""

import argparse
import json
import math
import os
import resource
import statistics
import sys
import time


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--data")
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--skip", type=int, default=2)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--micro-batch", type=int, default=0, help="rows that go through the model together; 0: the batch")
    p.add_argument("--seq-len", type=int, default=256)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--warmup-steps", type=int, default=0)
    p.add_argument("--lr-schedule", choices=["constant", "linear", "cosine"], default="constant")
    p.add_argument("--total-steps", type=int, default=0, help="length of the schedule; 0: --steps")
    p.add_argument("--min-lr-ratio", type=float, default=0.0)
    p.add_argument("--max-grad-norm", type=float, default=1.0)
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--betas", type=float, nargs=2, default=(0.9, 0.95))
    p.add_argument("--eps", type=float, default=1e-8)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--adamw", choices=["fused", "foreach", "loop"], default="fused")
    p.add_argument("--recompute", action="store_true", help="gradient checkpointing")
    p.add_argument("--mm", action="store_true")
    return p.parse_args()


def rate(a, step, total):
    """Learning rate of a step, counted from 1."""
    w = a.warmup_steps
    if step <= w:
        return a.lr * step / w
    done = min(1.0, (step - w) / max(1, total - w))
    if a.lr_schedule == "constant":
        return a.lr
    if a.lr_schedule == "linear":
        return a.lr * (1 - (1 - a.min_lr_ratio) * done)
    return a.lr * (a.min_lr_ratio + (1 - a.min_lr_ratio) * (1 + math.cos(math.pi * done)) / 2)


def products(a, torch):
    with open(os.path.join(a.model, "config.json")) as f:
        c = json.load(f)
    h, mlp, vocab = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    d = c.get("head_dim") or h // c["num_attention_heads"]
    q, kv = d * c["num_attention_heads"], d * c["num_key_value_heads"]
    tokens = (a.micro_batch or a.batch) * a.seq_len
    shapes = {"q": (q, h), "k and v": (kv, h), "o": (h, q)}
    shapes |= {"gate and up": (mlp, h), "down": (h, mlp), "head": (vocab, h)}
    for name, (n, k) in shapes.items():
        x, w, dy = torch.randn(tokens, k), torch.randn(n, k), torch.randn(tokens, n)
        kinds = {
            "forward": lambda: torch.mm(x, w.t()),
            "input": lambda: torch.mm(dy, w),
            "weight": lambda: torch.mm(dy.t(), x),
        }
        for kind, product in kinds.items():
            product()
            flop, times = 2.0 * tokens * n * k, []
            while sum(times) < 0.5 or len(times) < 5:
                start = time.perf_counter()
                product()
                times.append(time.perf_counter() - start)
            print(json.dumps({"product": name, "kind": kind, "m": tokens, "n": n, "k": k,
                              "gflops": round(flop / statistics.median(times) / 1e9, 1)}), flush=True)


def main():
    a = arguments()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(a.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    torch.set_num_threads(a.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(0)
    if a.mm:
        return products(a, torch)
    if not a.data:
        sys.exit("--data is needed")
    import tokenizers
    import transformers

    with open(a.data, encoding="utf-8", newline="") as f:
        text = f.read()
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(a.model, "tokenizer.json"))
    ids = torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids)
    rows = ids[: len(ids) // a.seq_len * a.seq_len].view(-1, a.seq_len)
    model = transformers.AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32, attn_implementation="sdpa")
    model.train()
    model.config.use_cache = False
    if a.recompute:
        model.gradient_checkpointing_enable()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": a.weight_decay}, {"params": rest, "weight_decay": 0.0}],
        lr=a.lr, betas=tuple(a.betas), eps=a.eps, fused=a.adamw == "fused", foreach=a.adamw == "foreach")
    print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__,
                      "threads": torch.get_num_threads(), "rows": len(rows),
                      "parameters": sum(p.numel() for p in model.parameters())}), flush=True)
    micro, seconds = a.micro_batch or a.batch, []
    targets = a.batch * (a.seq_len - 1)
    for step in range(1, a.steps + 1):
        start = time.perf_counter()
        first = (step - 1) * a.batch
        batch = rows[[(first + i) % len(rows) for i in range(a.batch)]]
        lr = rate(a, step, a.total_steps or a.steps)
        for group in optimizer.param_groups:
            group["lr"] = lr
        total = 0.0
        for part in batch.split(micro):
            logits = model(input_ids=part).logits[:, :-1]
            loss = torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), part[:, 1:].reshape(-1), reduction="sum") / targets
            loss.backward()
            total += loss.item()
        limit = a.max_grad_norm if a.max_grad_norm > 0 else math.inf
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
        print(json.dumps({"step": step, "loss": total, "grad_norm": norm.item(), "lr": lr, "tokens": batch.numel(),
                          "seconds": round(seconds[-1], 3),
                          "tokens_per_s": round(batch.numel() / seconds[-1], 1)}), flush=True)
    kept = seconds[a.skip:] or seconds
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"median_seconds": round(statistics.median(kept), 3), "peak_rss_bytes": peak,
                      "median_tokens_per_s": round(a.batch * a.seq_len / statistics.median(kept), 1)}))


main()
