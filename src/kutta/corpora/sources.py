"""The addresses of the corpora."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A file to download; without a known checksum, that of the first download is recorded."""

    url: str
    checksum: str = ""  # "sha256:..." or "md5:..." of the file as published


STATMT = "https://www.statmt.org"
TASK16 = "https://data.statmt.org/wmt16/translation-task"
MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
ANKI = "https://www.manythings.org/anki"

SOURCES: dict[str, Source] = {
    "training-parallel-europarl-v7.tgz": Source(
        f"{STATMT}/wmt13/training-parallel-europarl-v7.tgz",
        "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    "training-parallel-commoncrawl.tgz": Source(
        f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz",
        "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    "training-parallel-nc-v9.tgz": Source(
        f"{STATMT}/wmt14/training-parallel-nc-v9.tgz",
        "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
    "training-parallel-un.tgz": Source(f"{STATMT}/wmt13/training-parallel-un.tgz"),
    "training-giga-fren.tar": Source(f"{STATMT}/wmt10/training-giga-fren.tar"),
    "wmt12-test.tgz": Source(f"{STATMT}/wmt12/test.tgz", "md5:608232d34ebc4ba2ff70fead45674e47"),
    "wmt13-test.tgz": Source(f"{STATMT}/wmt13/test.tgz", "md5:48eca5d02f637af44e85186847141f67"),
    "wmt14-test-full.tgz": Source(
        f"{STATMT}/wmt14/test-full.tgz", "md5:a8cd784e006feb32ac6f3d9ec7eb389a"
    ),
    "wmt16-dev.tgz": Source(f"{TASK16}/dev.tgz", "md5:4a3dc2760bb077f4308cce96b06e6af6"),
    "wmt16-test.tgz": Source(f"{TASK16}/test.tgz", "md5:3d809cd0c2c86adb2c67034d15c4e446"),
    "europarl-v7-ro-en.tgz": Source(f"{STATMT}/europarl/v7/ro-en.tgz"),
    "setimes-v2-en-ro.txt.zip": Source(
        "https://object.pouta.csc.fi/OPUS-SETIMES/v2/moses/en-ro.txt.zip"
    ),
    "simple-examples.tgz": Source(
        "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",
        "md5:30177ea32e27c525793142b6bf2c8e2d",
    ),
    **{f"{code}-eng.zip": Source(f"{ANKI}/{code}-eng.zip") for code in ("deu", "fra", "ron")},
    **{
        f"multi30k-{text}.{language}.gz": Source(f"{MULTI30K}/{text}.{language}.gz", checksum)
        for text, checksums in {
            "train": ("", "", ""),  # the uncompressed text has a checksum in the recipe
            "val": ("", "", ""),
            "test_2016_flickr": ("", "", ""),
            "test_2017_flickr": (
                "md5:005396bac545d880abe6f00bbb7dbbb4",
                "md5:6a8d5c87f6ae19e3d35681aa6fd16571",
                "md5:cb09af7d2b501f9112f2d6a59fa1360d",
            ),
            "test_2017_mscoco": (
                "md5:a7b684e0edbef1d4a23660c8e8e743fd",
                "md5:e8cd6ec2bc8a11fc846fa48a46e3d0bb",
                "md5:4995d10954a804d3cdfd907b9fd093e8",
            ),
        }.items()
        for language, checksum in zip(("en", "de", "fr"), checksums, strict=True)
    },
}
