"""Objects of one resource made small: zstd with a dictionary that shows how they look. Pure.

Owns dictionaries and frames. docs/adr/0010 has the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_LEVEL: Final = 3
_PLAIN_BEGINS_WITH: Final = b"{"[0]
_SAMPLES: Final = 256
_SAMPLE_BYTES: Final = 8 * 1024
_CONTENT_BYTES: Final = 16 * 1024
_LEAST_BYTES: Final = 8
_TABLES_BYTES: Final = 2 * 1024
"""Room for the entropy tables that stand before a dictionary's content."""


class Dictionary:
    """Compresses objects that look like the samples which it was made of.

    Cost of an object of 1 KB: pack 3 us; unpack 12 to 25 us on a virtual machine, nearly all of it for making a
    decompressor, which serves one frame only (docs/adr/0010).
    """

    def __init__(self, samples: Sequence[bytes]) -> None:
        """Take *samples*, one or more, evenly spread over what is to be compressed."""
        parameter = zstd.CompressionParameter
        self._digested = _dictionary_of(samples).as_digested_dict
        self._compress = zstd.ZstdCompressor(
            options={
                parameter.compression_level: _LEVEL,
                parameter.checksum_flag: 0,
                parameter.dict_id_flag: 0,  # there is only one
            },
            zstd_dict=self._digested,
        ).compress

    def pack(self, raw: bytes) -> bytes:
        """*raw* as one frame."""
        return self._compress(raw, zstd.ZstdCompressor.FLUSH_FRAME)

    def unpack(self, packed: bytes) -> bytes:
        """The bytes that `pack` was given."""
        return zstd.ZstdDecompressor(self._digested).decompress(packed)


def is_packed(stored: bytes) -> bool:
    """Whether *stored* was made by `Dictionary.pack`: the JSON of an object begins with another byte than a frame."""
    return stored[0] != _PLAIN_BEGINS_WITH


def dictionary_for(objects: Sequence[bytes], *, worth_it: float) -> Dictionary | None:
    """A dictionary for objects like *objects*; None if those that it has not seen shrink to more than *worth_it*.

    Cost: a few milliseconds, however many there are and however large.
    """
    step = max(1, len(objects) // _SAMPLES)
    samples = [raw[:_SAMPLE_BYTES] for raw in objects[::step][:_SAMPLES]]
    unseen = samples[1::2]
    dictionary = Dictionary(samples[::2])
    packed = sum(len(dictionary.pack(raw)) for raw in unseen)
    return dictionary if packed <= worth_it * sum(map(len, unseen)) else None


def _dictionary_of(samples: Sequence[bytes]) -> zstd.ZstdDict:
    """A dictionary that shows some of *samples* and knows the frequencies of them all.

    It shows whole samples where `train_dict` would search for their best pieces: that takes 20 to 80 ms, on the
    event loop, and compresses objects of one resource no better.
    """
    content = b""
    for raw in samples:
        if content and len(content) + len(raw) > _CONTENT_BYTES:
            break
        content += raw
    shown = zstd.ZstdDict(content.ljust(_LEAST_BYTES), is_raw=True)
    try:
        return zstd.finalize_dict(shown, samples, len(content) + _TABLES_BYTES, _LEVEL)
    except zstd.ZstdError:  # too few of them, or all alike
        return shown
