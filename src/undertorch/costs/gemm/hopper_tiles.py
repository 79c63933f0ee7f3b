"""Tiles that cuBLAS offers on Hopper for 16-bit factors, as an H200 was seen to use them (cuBLAS of CUDA 13.0).

Source, all under tests/golden: h200_ops.json.gz, h200_gpt2_train.json.gz, and of h200_gemms.json.gz the layers not
marked `held`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One compiled kernel family."""

    columns: int
    rows: int
    major: str
    """The side that wgmma takes in steps of 64: `T` the columns, `N` the rows, as in the kernel's last letter."""
    stages: int
    """Steps of the inner dimension that are in shared memory at a time."""
    cooperative: str | None
    """`A` or `B` where both warp groups share a tile, split along that side."""
    shared: int
    """Bytes a block."""
    layouts: tuple[str, ...]
    """Layouts of the factors that it was seen with."""

    @property
    def name(self) -> str:
        """As in the kernel's name."""
        return f"{self.columns}x{self.rows}"


TILES = tuple(
    Tile(
        columns=columns,
        rows=rows,
        major=major,
        stages=stages,
        cooperative=cooperative,
        shared=shared,
        layouts=tuple(layouts.split()),
    )
    for columns, rows, major, stages, cooperative, shared, layouts in (
        (8, 64, "N", 16, None, 164308, "rc"),
        (16, 64, "N", 16, None, 180692, "rc"),
        (32, 64, "N", 16, None, 213460, "cr rr"),
        (40, 64, "N", 16, None, 229844, "rc"),
        (48, 64, "N", 15, None, 231868, "rc"),
        (64, 8, "T", 16, None, 164308, "rc rr"),
        (64, 16, "T", 16, None, 180692, "rc rr"),
        (64, 24, "T", 16, None, 197076, "rc rr"),
        (64, 32, "T", 16, None, 213460, "cr rc rr"),
        (64, 40, "T", 16, None, 229844, "rr"),
        (64, 48, "T", 15, None, 231868, "rc rr"),
        (64, 56, "T", 14, None, 231844, "rr"),
        (64, 64, "T", 13, None, 229772, "cr rc rr"),
        (64, 80, "T", 11, None, 219484, "rr"),
        (64, 112, "T", 9, None, 219436, "rc rr"),
        (64, 128, "N", 8, None, 213268, "cr rr"),
        (64, 160, "T", 6, None, 213220, "cr"),
        (64, 192, "N", 6, None, 213220, "rc"),
        (64, 256, "N", 5, None, 221388, "cr"),
        (64, 512, "T", 2, "B", 163972, "rr"),
        (72, 64, "N", 12, None, 225652, "rc"),
        (80, 128, "N", 8, None, 229668, "rc"),
        (96, 64, "N", 8, None, 213268, "cr rr"),
        (96, 128, "N", 6, None, 213220, "cr rr"),
        (96, 192, "N", 5, None, 221420, "cr"),
        (112, 128, "N", 7, None, 231692, "rc"),
        (128, 8, "T", 12, None, 225652, "rc rr"),
        (128, 16, "T", 11, None, 219484, "rr"),
        (128, 32, "T", 10, None, 221508, "rc"),
        (128, 64, "T", 8, None, 213268, "cr rc rr"),
        (128, 80, "T", 8, None, 229652, "rc rr"),
        (128, 96, "T", 7, None, 217340, "rc rr"),
        (128, 96, "T", 6, None, 213220, "cr"),
        (128, 104, "T", 7, None, 224508, "rc"),
        (128, 128, "T", 6, None, 213220, "rr"),
        (128, 160, "T", 5, None, 200924, "rc"),
        (128, 160, "T", 5, None, 221388, "cr"),
        (128, 168, "T", 5, None, 206012, "rc"),
        (128, 192, "N", 5, "B", 221420, "cr rc rr"),
        (128, 256, "N", 4, "A", 213188, "cr rr"),
        (144, 128, "N", 6, None, 225492, "rc"),
        (160, 64, "N", 6, None, 213220, "cr"),
        (160, 128, "N", 5, None, 221404, "rr"),
        (160, 128, "N", 5, None, 221388, "cr"),
        (168, 128, "N", 5, None, 206044, "rc"),
        (176, 128, "N", 5, None, 211164, "rc"),
        (192, 8, "T", 8, None, 221460, "rc rr"),
        (192, 96, "T", 5, None, 221388, "cr"),
        (192, 96, "T", 5, "B", 200908, "rc"),
        (192, 128, "T", 5, "B", 221420, "cr rc rr"),
        (192, 192, "N", 3, "B", 188604, "cr rr"),
        (192, 192, "N", 4, "B", 213204, "rc"),
        (200, 128, "N", 5, "A", 226492, "rc"),
        (256, 8, "T", 6, None, 219364, "rc"),
        (256, 112, "T", 4, "A", 204996, "rr"),
        (256, 128, "T", 4, "A", 213188, "cr rc rr"),
        (256, 160, "T", 4, "A", 229572, "rc"),
        (320, 64, "T", 4, None, 213172, "cr"),
        (320, 128, "T", 3, "B", 188636, "cr rc rr"),
        (384, 8, "T", 4, None, 217268, "rc"),
    )
)
