"""Train on a folder of your own images, one sub-folder per class, and keep the network in a file.

python examples/own_data.py FOLDER [epochs]
"""

import sys

import torch

import onelip
from onelip.bench.data import BatchStream, evaluation_batches, make_splits, read_folder

if len(sys.argv) < 2:
    sys.exit("which folder of images? python examples/own_data.py FOLDER [epochs]")
epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 10
torch.manual_seed(0)
data = read_folder(sys.argv[1])  # without a test folder, a fifth of every class becomes the test set
train, validation, test = make_splits(data, validation_fraction=0.1, seed=0)
count, channels, height, width = data.train_images.shape
classes = data.info.num_classes
print(f"{count} training images of {classes} classes, {channels} x {height} x {width}")

model = onelip.ConvNet("aol", None, classes, width=8, in_channels=channels, input_size=height, input_width=width)
loss = onelip.OffsetCrossEntropy(temperature=1.0)
optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
stream = BatchStream(train, batch_size=32, seed=0)
for epoch in range(epochs):
    for images, labels in stream:
        optimiser.zero_grad()
        loss(model(images), labels).backward()
        optimiser.step()
    result = onelip.certified_accuracy(model, evaluation_batches(validation), eps=(36 / 255,))
    print(f"epoch {epoch + 1}: accuracy {result.accuracy:.1%}, certified at 36/255 {result.certified[36 / 255]:.1%}")

result = onelip.certified_accuracy(model, evaluation_batches(test))
print(f"test images: accuracy {result.accuracy:.1%}")
for radius, share in result.certified.items():
    print(f"correct and certified at {radius:.3f}: {share:.1%}")
onelip.save_model(model, "own_data.safetensors")
print("saved own_data.safetensors, which onelip.load_model reads")
