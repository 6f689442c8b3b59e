"""Trains the digit classifier and writes its weights, the held-out digits and eager's outputs.

The split and the seed are fixed, so two runs on one machine write the same files. Writes, in the artifacts folder:

    digits.pt      the weights (a state dict)
    heldout.npz    images float32 [450, 1, 8, 8], labels int64 [450], eager float32 [450, 10] (eager's logits)
    heldout.f32    the same images as raw little-endian floats, for the C++ example
"""

import time

import numpy as np
import torch
from model import DigitNet, artifacts
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

EPOCHS = 12
BATCH = 64
HELD_OUT = 450


def main() -> None:
    torch.manual_seed(0)
    # The network is too small for more threads, and one thread does not wait for busy cores.
    torch.set_num_threads(1)
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    labels = digits.target.astype(np.int64)
    train_x, held_x, train_y, held_y = train_test_split(
        images, labels, test_size=HELD_OUT, random_state=0, stratify=labels
    )
    inputs, targets = torch.from_numpy(train_x), torch.from_numpy(train_y)

    network = DigitNet().train()
    steps = EPOCHS * -(-len(inputs) // BATCH)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for rows in torch.randperm(len(inputs)).split(BATCH):
            loss = nn.functional.cross_entropy(network(inputs[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        if epoch % 3 == 2:
            print(f"epoch {epoch + 1:2}  loss {total / len(inputs):.4f}")

    network.eval()
    with torch.inference_mode():
        logits = network(torch.from_numpy(held_x)).numpy()
    accuracy = float((logits.argmax(1) == held_y).mean())
    seconds = time.perf_counter() - began
    print(f"trained on {len(train_x)} digits in {seconds:.1f} s; {accuracy:.2%} of {len(held_x)} held-out digits right")

    folder = artifacts()
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(network.state_dict(), folder / "digits.pt")
    np.savez(folder / "heldout.npz", images=held_x, labels=held_y, eager=logits)
    held_x.astype("<f4").tofile(folder / "heldout.f32")


if __name__ == "__main__":
    main()
