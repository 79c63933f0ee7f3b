"""What ptxas says of a kernel."""

import pytest

from undertorch.compilers.file_names import file_names, unescaped
from undertorch.compilers.ptxas import programs, resources

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{
	.reg .b64 %rd<3>;
	.loc	1 3 5{inlined}
	ld.param.u64 %rd1, [k_param_0];
	cvta.to.global.u64 %rd2, %rd1;
	st.global.u64 [%rd2], %rd1;
	ret;
}
	.file	1 "/tmp/k.py"
"""


@pytest.mark.skipif(not programs(), reason="needs ptxas: a CUDA toolkit's, or Triton's")
def test_lines_that_were_inlined_change_no_registers():
    """LLVM writes `inlined_at` without `function_name`, as it stands in Triton's kernels; ptxas refuses that."""
    plain = resources(PTX.replace("{inlined}", ""), "k", (8, 0))
    assert plain is not None
    assert resources(PTX.replace("{inlined}", ", inlined_at 1 2 2"), "k", (8, 0)) == plain


def test_names_of_files_are_those_of_the_file_system():
    """NVRTC and LLVM write bytes beyond ASCII in octal: ü is 303 274 in UTF-8."""
    assert unescaped(r"/a b/\303\274.cu") == "/a b/ü.cu"
    assert file_names('.file\t1 "a.cu"\n\t.file 2 "\\303\\274.cuh"\n') == ("a.cu", "ü.cuh")
