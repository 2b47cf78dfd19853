"""Train a tokenizer on the documents, and pack the shuffled documents into shards of tokens."""

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from experiments.quickstart_steps.extras import needs_extra
from experiments.quickstart_steps.storage import (
    read_bytes,
    read_json,
    read_rows,
    sha256,
    stable_order,
    write_json,
)
from rigging.errors import InvalidRequest
from rigging.filesystem import write_bytes_atomic

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer

END_OF_TEXT: Final = "<|end|>"
TOKENIZER: Final = "tokenizer.json"
MANIFEST: Final = "manifest.json"
# All bytes and the end of a text; what goes above is learnt. Tokens are kept in 16 bits.
LEAST_VOCABULARY: Final = 257
GREATEST_VOCABULARY: Final = 65_536


@dataclass(frozen=True)
class TokenizerConfig:
    """The settings of the tokenizer's training.

    Attributes:
        documents: A file of documents.
        vocabulary: Number of different tokens.
        max_bytes: Maximum number of bytes of text to train on.
        output_path: Receives `tokenizer.json`.
    """

    documents: str
    vocabulary: int
    max_bytes: int
    output_path: str


@dataclass(frozen=True)
class PackConfig:
    """The settings for packing documents.

    Attributes:
        documents: The folder with `train.jsonl` and `heldout.jsonl`.
        tokenizer: The folder of the tokenizer step.
        sequence_length: Number of tokens in the model's context.
        shards: Number of files of training tokens.
        seed: Random seed of the order of documents and sequences.
        output_path: Receives the shards, `heldout.npy` and `manifest.json`.
    """

    documents: str
    tokenizer: str
    sequence_length: int
    shards: int
    seed: int
    output_path: str


def train_tokenizer(config: TokenizerConfig) -> None:
    """Train a byte-level BPE tokenizer.

    Raises:
        InvalidRequest: `vocabulary` is out of range.
    """
    if not LEAST_VOCABULARY < config.vocabulary <= GREATEST_VOCABULARY:
        raise InvalidRequest(
            f"vocabulary {config.vocabulary} is not above {LEAST_VOCABULARY} and at most {GREATEST_VOCABULARY}"
        )
    with needs_extra("the tokenizer"):
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    texts = [row["text"] for row in read_rows(config.documents)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_first_bytes(texts, config.max_bytes), trainer)
    content = tokenizer.to_str(pretty=True).encode()
    write_bytes_atomic(os.path.join(config.output_path, TOKENIZER), content)
    stats = {"vocabulary": tokenizer.get_vocab_size(), "sha256": sha256(content)}
    write_json(os.path.join(config.output_path, "stats.json"), stats)


def load_tokenizer(folder: str) -> "Tokenizer":
    """Return the tokenizer of a folder."""
    with needs_extra("the tokenizer"):
        from tokenizers import Tokenizer

    return Tokenizer.from_str(read_bytes(os.path.join(folder, TOKENIZER)).decode())


def end_of_text(tokenizer: "Tokenizer") -> int:
    """Return the token that separates texts.

    Raises:
        InvalidRequest: The tokenizer has no such token.
    """
    token = tokenizer.token_to_id(END_OF_TEXT)
    if token is None:
        raise InvalidRequest(f"the tokenizer has no token {END_OF_TEXT!r}")
    return token


def encode_documents(tokenizer: "Tokenizer", texts: Sequence[str]) -> list[int]:
    """Return the concatenated tokens of all texts, with the separator before each text and after the last."""
    end = end_of_text(tokenizer)
    tokens = [end]
    for text in texts:
        tokens += [*tokenizer.encode(text).ids, end]
    return tokens


def pack_sequences(tokens: Sequence[int], length: int, seed: int) -> "np.ndarray[Any, np.dtype[np.uint16]]":
    """Split tokens into shuffled rows of `length + 1`: inputs, and targets shifted by one.

    Each row begins with the last token of the previous row, so that every token but the first is predicted once. An
    incomplete last row is dropped.
    """
    with needs_extra("packing"):
        import numpy as np

    rows = (len(tokens) - 1) // length
    packed = np.empty((rows, length + 1), dtype=np.uint16)
    for row in range(rows):
        packed[row] = tokens[row * length : (row + 1) * length + 1]
    return packed[np.random.default_rng(seed).permutation(rows)]


def pack_documents(config: PackConfig) -> None:
    """Write the shards of training tokens, the held-out tokens, and a manifest of both.

    Raises:
        InvalidRequest: The text gives fewer sequences than shards.
    """
    with needs_extra("packing"):
        import numpy as np

    tokenizer = load_tokenizer(config.tokenizer)
    documents = read_rows(os.path.join(config.documents, "train.jsonl"))
    documents.sort(key=lambda row: stable_order(config.seed, row["id"]))
    tokens = encode_documents(tokenizer, [row["text"] for row in documents])
    packed = pack_sequences(tokens, config.sequence_length, config.seed)
    if len(packed) < config.shards:
        raise InvalidRequest(
            f"too little text: {len(tokens)} tokens make {len(packed)} sequences of {config.sequence_length}, fewer "
            f"than the {config.shards} shards; give more pages, or see removed.jsonl in {config.documents}"
        )
    files = []
    for shard in range(config.shards):
        rows = packed[shard :: config.shards]
        name = f"train-{shard:05}-of-{config.shards:05}.npy"
        files.append({"name": name, "sequences": len(rows), "sha256": _write_array(config.output_path, name, rows)})
    heldout = [row["text"] for row in read_rows(os.path.join(config.documents, "heldout.jsonl"))]
    heldout_tokens = np.array(encode_documents(tokenizer, heldout), dtype=np.uint16)
    manifest = {
        "train": {"documents": len(documents), "tokens": len(tokens), "sequences": len(packed), "files": files},
        "heldout": {
            "documents": len(heldout),
            "tokens": len(heldout_tokens),
            "bytes": sum(len(text.encode()) for text in heldout),
            "name": "heldout.npy",
            "sha256": _write_array(config.output_path, "heldout.npy", heldout_tokens),
        },
        "sequence_length": config.sequence_length,
        "vocabulary": tokenizer.get_vocab_size(),
        "tokenizer_sha256": sha256(read_bytes(os.path.join(config.tokenizer, TOKENIZER))),
        "dtype": "uint16",
    }
    write_json(os.path.join(config.output_path, MANIFEST), manifest)


def read_manifest(folder: str) -> dict[str, Any]:
    """Return the manifest of a folder of tokens."""
    manifest: dict[str, Any] = read_json(os.path.join(folder, MANIFEST))
    return manifest


def load_train(folder: str) -> "np.ndarray[Any, np.dtype[np.uint16]]":
    """Return all training sequences.

    Raises:
        InvalidRequest: A shard does not match the manifest.
    """
    import numpy as np

    return np.concatenate([_read_array(folder, file) for file in read_manifest(folder)["train"]["files"]])


def load_heldout(folder: str) -> "np.ndarray[Any, np.dtype[np.uint16]]":
    """Return the held-out tokens. Raise like `load_train`."""
    return _read_array(folder, read_manifest(folder)["heldout"])


def _read_array(folder: str, entry: dict[str, Any]) -> "np.ndarray[Any, np.dtype[np.uint16]]":
    import numpy as np

    path = os.path.join(folder, entry["name"])
    content = read_bytes(path)
    if sha256(content) != entry["sha256"]:
        raise InvalidRequest(f"{path} has the digest {sha256(content)}, but the manifest has {entry['sha256']}")
    array: np.ndarray[Any, np.dtype[np.uint16]] = np.load(io.BytesIO(content), allow_pickle=False)
    return array


def _write_array(folder: str, name: str, array: "np.ndarray[Any, Any]") -> str:
    import numpy as np

    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    write_bytes_atomic(os.path.join(folder, name), content.getvalue())
    return sha256(content.getvalue())


def _first_bytes(texts: Sequence[str], limit: int) -> Iterator[str]:
    used = 0
    for text in texts:
        used += len(text.encode())
        if used > limit:
            return
        yield text
