"""Loads an exported folder with transformers and generates text. Exits with 1 if a key is missing or unexpected, a
tensor has another dtype than config.json says or is empty, the index does not fit the shards, or no text comes.

    python load_export.py DIR [--prompt TEXT] [--tokens 20] [--like SOURCE]

--like compares tensor names and shapes, and every setting of its config.json but the dtype, with another folder.
"""

import argparse
import json
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


def shards(folder):
    """Tensor name -> file, and the index's total size if there is an index."""
    from safetensors import safe_open

    index = os.path.join(folder, "model.safetensors.index.json")
    total, names = None, {}
    if os.path.exists(index):
        with open(index) as f:
            index = json.load(f)
        total, names = index["metadata"]["total_size"], index["weight_map"]
    files = sorted(set(names.values())) or ["model.safetensors"]
    found = {}
    for file in files:
        with safe_open(os.path.join(folder, file), framework="pt") as f:
            for name in f.keys():
                assert name not in found, f"{name} is in two shards"
                found[name] = (file, f.get_tensor(name))
    if names:
        assert {n: f for n, (f, _) in found.items()} == names, "the index and the shards disagree"
    return {n: t for n, (_, t) in found.items()}, total


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--prompt", default="To be, or not to be")
    p.add_argument("--tokens", type=int, default=20)
    p.add_argument("--like")
    a = p.parse_args()
    import torch
    import transformers

    tensors, total = shards(a.folder)
    with open(os.path.join(a.folder, "config.json")) as f:
        config = json.load(f)
    named = config.get("dtype") or config.get("torch_dtype")
    dtypes = {str(t.dtype).removeprefix("torch.") for t in tensors.values()}
    assert dtypes == {named}, f"config.json says {named}, the tensors are {sorted(dtypes)}"
    assert all(t.numel() > 0 for t in tensors.values()), "a tensor is empty"
    assert all(torch.isfinite(t).all() for t in tensors.values()), "a tensor holds NaN or Inf"
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    assert total in (None, size), f"the index says {total} bytes, the tensors have {size}"
    if a.like:
        source, _ = shards(a.like)
        shapes = lambda all: {n: t.shape for n, t in all.items()}
        assert shapes(source) == shapes(tensors), "other tensors than the source"
        with open(os.path.join(a.like, "config.json")) as f:
            original = json.load(f)
        kept = {k: v for k, v in original.items() if k not in ("dtype", "torch_dtype")}
        assert all(config.get(k) == v for k, v in kept.items()), "other settings"
    load = transformers.AutoModelForCausalLM.from_pretrained
    model, info = load(a.folder, dtype=torch.float32, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not info.get(kind), f"{kind}: {info[kind]}"
    if os.path.exists(os.path.join(a.folder, "tokenizer.json")):
        tokenizer = transformers.AutoTokenizer.from_pretrained(a.folder)
        ids = tokenizer(a.prompt, return_tensors="pt").input_ids
        show = lambda out: tokenizer.decode(out)
    else:
        ids = torch.tensor([list(a.prompt.encode())])
        show = lambda out: bytes(i for i in out if i < 256).decode(errors="replace")
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=a.tokens, do_sample=False,
                             pad_token_id=0)[0, ids.shape[1]:].tolist()
    assert out, "nothing was generated"
    print(json.dumps({"tensors": len(tensors), "dtype": named, "bytes": size, "prompt": a.prompt, "text": show(out)}))


main()
