"""Training scripts of the kind the guides use, small enough for any machine."""

SYNTHETIC = '''
"""Random data, a small model, and a line every ten steps, like the guide's benchmark."""
import argparse, time
import torch
import midflight as mf

parser = argparse.ArgumentParser()
parser.add_argument("--num-iters", type=int, default=10000)
parser.add_argument("--num-warmup-batches", type=int, default=0)
options = parser.parse_args()
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = [(torch.randn(32), torch.randint(10, ()).long()) for _ in range(2000)]
began = time.monotonic()
with mf.join(model=model, optimizer=optimizer) as job:
    for batch in job.batches(data, global_batch_size=40, epochs=1_000_000):
        loss = torch.nn.functional.cross_entropy(model(batch.x), batch.y)
        job.step(loss)
        time.sleep(0.02)
        if batch.step and batch.step % 10 == 0 and job.rank == 0:
            rate = 400 / (time.monotonic() - began) / job.size
            began = time.monotonic()
            print(f"Iter #{batch.step // 10}: {rate:.1f} img/sec per GPU", flush=True)
        if batch.step >= 10 * options.num_iters:
            break
'''

MNIST_LIKE = '''
"""Ten blurred shapes to tell apart; every member says its step and loss."""
import time
import torch
import midflight as mf

torch.set_num_threads(1)
torch.manual_seed(1)
shapes = torch.randn(10, 64)
labels = torch.arange(4000) % 10
images = shapes[labels] + 0.3 * torch.randn(4000, 64)
data = torch.utils.data.TensorDataset(images, labels)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
with mf.join(model=model, optimizer=optimizer) as job:
    for batch in job.batches(data, global_batch_size=40, epochs=1_000_000):
        loss = torch.nn.functional.cross_entropy(model(batch.x), batch.y)
        job.step(loss)
        time.sleep(0.02)
        if batch.step % 10 == 0:
            print(f"Step #{batch.step}    Loss: {loss.item():.6f}", flush=True)
'''

DISTRIBUTED = '''
"""Plain torch.distributed, as in a thousand repositories; knows nothing of Midflight."""
import argparse, os, sys
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
parser.add_argument("--epochs", type=int, default=1)
options = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(1)
print(f"WORLD_SIZE: {os.environ['WORLD_SIZE']}, CURRENT_RANK: {os.environ['RANK']}")
print(f"args: {options}")
dist.init_process_group(options.backend)
print(f"Using distributed PyTorch with {options.backend} backend", flush=True)
shapes = torch.randn(10, 64)
labels = torch.arange(2000) % 10
images = shapes[labels] + 0.3 * torch.randn(2000, 64)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
mine = range(dist.get_rank(), 2000, dist.get_world_size())
for epoch in range(1, options.epochs + 1):
    for done in range(0, len(mine), 50):
        index = torch.tensor(mine[done : done + 50])
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[index]), labels[index])
        loss.backward()
        optimizer.step()
        if done % 250 == 0:
            share = 100 * done // len(mine)
            print(f"Train Epoch: {epoch} [{done}/{len(mine)} ({share}%)]\\tloss={loss.item():.4f}")
accuracy = (model(images).argmax(1) == labels).float().mean()
print(f"\\naccuracy={accuracy:.4f}\\n", flush=True)
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # torch's own threads have been seen to abort a process that had ended well
'''
