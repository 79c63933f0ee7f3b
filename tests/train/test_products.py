"""How a product is described to cuBLASLt, which has matrices column after column; and the product without it."""

import pytest
import torch

from undertorch.train.products import Heuristic, NotServed, gelu_product, operand, product


def as_cublaslt_has_it(x):
    """A matrix in memory by its description: element (row, column) lies at row + column * apart (cuBLASLt's manual,
    "cublasLtOrder_t", CUBLASLT_ORDER_COL); turned where the operation says so.
    """
    its = operand(x)
    matrix = torch.as_strided(x, (its.rows, its.columns), (1, its.apart), x.storage_offset())
    return matrix.t() if its.turned else matrix


@pytest.mark.parametrize("first_turned", [False, True])
@pytest.mark.parametrize("second_turned", [False, True])
def test_cublaslt_computes_the_transpose_of_the_product_from_the_operands_in_reverse(first_turned, second_turned):
    first = torch.randn(7, 5).t() if first_turned else torch.randn(5, 9)[:, 1:8]
    second = torch.randn(3, 7).t() if second_turned else torch.randn(7, 4)[:, :3]
    result = as_cublaslt_has_it(second) @ as_cublaslt_has_it(first)
    torch.testing.assert_close(result, (first @ second).t())


def test_a_matrix_with_gaps_both_ways_is_refused():
    with pytest.raises(NotServed, match="neither rows nor columns"):
        operand(torch.randn(8, 8)[::2, ::2])


def test_the_answers_of_the_heuristic_lie_as_in_its_header():
    """cublasLtMatmulHeuristicResult_t of cublasLt.h, CUDA 13.0: 64 bytes of algorithm, a size_t, an enum, a float, four
    ints.
    """
    places = {name: getattr(Heuristic, name).offset for name, _ in Heuristic._fields_}
    assert places == {"algorithm": 0, "workspace": 64, "state": 72, "waves": 76, "reserved": 80}


@pytest.mark.parametrize("biased", [False, True])
def test_without_cublaslt_a_product_is_torchs(biased):
    first, second, bias = torch.randn(5, 7), torch.randn(3, 7).t(), torch.randn(3) if biased else None
    wanted = first @ second + (bias if biased else 0)
    torch.testing.assert_close(product(first, second, bias), wanted)


def test_gelu_and_what_goes_into_it_on_meta_tensors_have_the_products_shape():
    with torch.device("meta"):
        answer, before = torch.ops.undertorch.gelu_product(torch.empty(5, 7), torch.empty(7, 3), torch.empty(3))
    assert answer.shape == before.shape == (5, 3)
    assert gelu_product.name == "gelu_product"
