#!/usr/bin/env python3
"""Turns a checkpoint of the authors' PyTorch program (.pkl or .pt) into safetensors for `san import`.

    python3 export_state_dict.py checkpoint.pkl weights.safetensors

Runs with your own PyTorch; nothing else is needed. Only tensors are read from the checkpoint: with PyTorch 1.13 or
newer nothing in it is executed. Older versions unpickle freely: open only files you trust.
"""
import argparse
import json
import struct
import sys

import torch

DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16",
          torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}


def load(path):
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except TypeError:  # PyTorch before 1.13 has no weights_only
        state = torch.load(path, map_location="cpu")
    # Trainers wrap the weights in their own ways.
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(torch.is_tensor(value) for value in state.values()):
        sys.exit(f"{path}: not a state dict (name -> tensor)")
    return {name[7:] if name.startswith("module.") else name: value.detach().contiguous() for name, value in state.items()}


def write(path, state):
    header, chunks, offset = {}, [], 0
    for name, tensor in sorted(state.items()):
        if tensor.dtype not in DTYPES:
            sys.exit(f"{name}: cannot write type {tensor.dtype}")
        flat = tensor.reshape(-1)
        if tensor.dtype == torch.bfloat16:  # NumPy has no such type
            flat = flat.view(torch.int16)
        data = flat.numpy().tobytes()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(data)]}
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # data starts aligned
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("out")
    arguments = parser.parse_args()
    state = load(arguments.checkpoint)
    write(arguments.out, state)
    print(f"{arguments.out}: {len(state)} tensors, {sum(t.numel() for t in state.values())} numbers")


if __name__ == "__main__":
    main()
