"""A small training loop that ends as its first argument says."""

import sys
import time

import torch
from torch import nn

how = sys.argv[1]
print("to standard output")
print("to standard error", file=sys.stderr)


def fail():
    raise ValueError("the learning rate is negative")


def train(steps):
    model = nn.Linear(3, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 3, device="cuda")).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    try:
        if how == "raises":
            fail()
        elif how == "mismatch":
            torch.ones(2, 3, device="cuda") @ torch.ones(2, 3, device="cuda")
        elif how == "devices":
            nn.Linear(3, 3).cuda()(torch.ones(2, 3))
        elif how == "convolved":
            nn.Conv2d(3, 3, 1).cuda()(torch.ones(2, 3, 4, 4))
        elif how == "profiles":
            activity = torch.profiler.ProfilerActivity
            with torch.profiler.profile(activities=[activity.CPU, activity.CUDA]):
                train(4)
        elif how == "exits":
            sys.exit(3)
        elif how == "quits":
            train(1)
            sys.exit()
        elif how == "no-step":
            train(0)
        elif how == "one-step":
            train(1)
        elif how == "waits":
            print("waiting", flush=True)
            time.sleep(60)
        else:
            train(4)
    finally:
        print("finally ran")
