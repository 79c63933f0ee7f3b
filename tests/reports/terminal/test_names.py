"""Kernels' names in few cells: whoever reads them can still tell one kernel from another."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from undertorch.reports.terminal.names import folded, short_name, short_names

NAMES = st.text(st.sampled_from("abc19x_<>,: 宽"), min_size=1, max_size=60)

FORWARD = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_kernel0_0"
BACKWARD = "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x128x64_1x4x1_kernel0_0"


def test_a_templates_arguments_stay_whole():
    assert short_name("vectorized_elementwise_kernel<4, mul_scalar>", 28) == "vectorized_e…<4, mul_scalar>"
    assert short_name("reduce_kernel<512, 1, mean>", 27) == "reduce_kernel<512, 1, mean>"


def test_a_librarys_tile_stays():
    name = "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"
    assert short_name(name, 28) == "nvjet…192x192…coopB_bias_TNN"
    name = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_kernel"
    assert short_name(name, 31) == "sm80…32x32x8…na4_alignc4_kernel"


def test_kernels_that_differ_in_one_word_do_not_look_alike():
    """In 26 cells, the tile and both ends of cuDNN's forward and backward are the same."""
    assert short_name(FORWARD, 26) == short_name(BACKWARD, 26)
    assert short_names([FORWARD, BACKWARD], 26) == ["cudnn…fprop_wgmma_f16_kno…", "cudnn…bprop_wgmma_f16_kno…"]


def test_functors_tell_the_kernels_of_an_optimizer_apart():
    names = [f"multi_tensor_apply_kernel<{kind}OpScalarFunctor>" for kind in ("Binary", "Ternary", "Pointwise")]
    assert short_names(names, 32) == [
        "multi_te…<BinaryOpScalarFunctor>",
        "multi_t…<TernaryOpScalarFunctor>",
        "multi…<PointwiseOpScalarFunctor>",
    ]


def test_the_same_kernel_has_the_same_name_each_time():
    assert len(set(short_names([FORWARD] * 3, 20))) == 1


@given(st.lists(NAMES, max_size=4), st.integers(1, 40))
def test_every_name_fits_its_cells(names, width):
    short = short_names(names, width)
    assert len(short) == len(names)
    assert all(cell_len(one) <= width for one in short)
    assert all(one == name for one, name in zip(short, names, strict=True) if cell_len(name) <= width)


@given(NAMES, st.integers(2, 40))
def test_a_folded_name_is_whole_and_fits(name, width):
    rows = folded(name, width)
    assert "".join(rows) == name
    assert all(cell_len(row) <= width for row in rows)


def test_a_name_is_folded_where_a_word_ends():
    assert folded("multi_tensor_apply_kernel<PointwiseOpScalarListFunctor>", 54) == [
        "multi_tensor_apply_kernel<",
        "PointwiseOpScalarListFunctor>",
    ]
