"""Names, and sheets of one's own with everything that can be wrong in them."""

import subprocess
import sys

import pytest

from undertorch import gpus
from undertorch.records import Math

WHOLE = """
name = "X1"
full_name = "Example X1"
vendor = "Example"
architecture = "None yet"
verified = false
source = "a plan"
[processor]
sms = 10
cuda_cores_per_sm = 128
boost_clock_mhz = 1000
[memory]
source = "a dream"
memory_bytes = 1_000_000_000
memory_bandwidth = { value = 1e12, source = "a hope" }
l2_bytes = 1_000_000
[peaks]
fp32 = 2.56e12
[limits]
max_threads_per_sm = 2048
max_blocks_per_sm = 32
registers_per_sm = 65536
registers_per_block = 65536
[shared]
shared_per_sm = 102_400
shared_per_block = 49_152
shared_per_block_optin = 101_376
"""


@pytest.fixture
def sheet(tmp_path):
    """Writes a sheet and answers its path."""

    def write(text, name="my_gpu.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("h200", "H200"),
        ("H200", "H200"),
        (" h 2 0 0 ", "H200"),
        ("NVIDIA H200", "H200"),
        ("a100-80gb", "A100-80GB"),
        ("A100 80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("A100-SXM4-40GB", "A100-40GB"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("nvidia geforce rtx 4090", "RTX4090"),
        ("rtx_4090", "RTX4090"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("h100 pcie", "H100-PCIe"),
        ("H100", "H100-SXM"),  # as people say; the PCIe board is always called that
        ("AMD Instinct MI300X", "MI300X"),
        ("mi250x", "MI250X"),
        ("Tesla T4", "T4"),
        ("NVIDIA RTX A6000", "A6000"),
        ("a6000", "A6000"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GH200 480GB", "GH200"),
    ],
)
def test_a_gpu_is_found_by_its_name_and_by_its_drivers_name(typed, name):
    assert gpus.find(typed).name == name


def test_every_gpu_is_found_by_both_of_its_names():
    for gpu in gpus.all_gpus():
        assert gpus.find(gpu.name) is gpu
        assert gpus.find(gpu.full_name) is gpu


def test_names_are_those_of_the_sheets():
    assert gpus.names() == tuple(gpu.name for gpu in gpus.all_gpus())
    assert len(gpus.names()) >= 16


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("H20", "H200"),
        ("H100-P", "H100-PCIe"),
        ("A100", "A100-40GB and A100-80GB"),
        ("rtx 4900", "RTX4090"),
        ("Mi300", "MI300X"),
    ],
)
def test_an_unknown_name_is_refused_in_one_sentence_with_the_nearest(typed, nearest):
    with pytest.raises(gpus.UnknownGpu) as refused:
        gpus.find(typed)
    message = str(refused.value)
    assert repr(typed) in message
    assert nearest in message
    assert "undertorch gpus" in message
    assert message.count(". ") == 0


@pytest.mark.parametrize("typed", ["", "   ", "NVIDIA", "quantum"])
def test_a_name_near_nothing_gets_no_guess(typed):
    with pytest.raises(gpus.UnknownGpu, match=r"There is no GPU named '.*'; `undertorch gpus` lists all"):
        gpus.find(typed)


def test_a_path_to_nothing_is_refused(tmp_path):
    with pytest.raises(gpus.UnknownGpu, match=r"nothing\.toml cannot be read: No such file"):
        gpus.find(str(tmp_path / "nothing.toml"))
    with pytest.raises(gpus.UnknownGpu, match="cannot be read"):
        gpus.find(tmp_path)


def test_a_sheet_of_ones_own_is_read_by_its_path(sheet):
    path = sheet(WHOLE)
    for typed in (path, str(path)):
        gpu = gpus.find(typed)
        assert (gpu.name, gpu.sms, gpu.cuda_cores, gpu.verified) == ("X1", 10, 1280, False)
        assert gpu.peaks == {Math.FP32: 2.56e12}
        assert gpu.base_clock_mhz is None
        assert gpu.warp_size == 32


def test_a_figure_has_its_own_source_or_that_of_its_table_or_none(sheet):
    sources = gpus.find(sheet(WHOLE)).sources
    assert sources["name"] == "a plan"
    assert sources["memory_bytes"] == "a dream"
    assert sources["memory_bandwidth"] == "a hope"
    assert sources["sms"] == "my_gpu.toml (no source given)"
    assert sources["warp_size"] == "not given; taken as usual"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sms = 10", "", "processor.sms is missing; expected a whole number above 0"),
        ("sms = 10", "sms = 0", "processor.sms is 0; expected a whole number above 0"),
        ("sms = 10", "sms = -3", "processor.sms is -3; expected a whole number"),
        ("sms = 10", 'sms = "ten"', "processor.sms is 'ten'; expected a whole number"),
        ("sms = 10", "sms = 10.5", "processor.sms is 10.5; expected a whole number"),
        ("sms = 10", f"sms = 1{'0' * 400}", "; expected a whole number above 0"),
        ("sms = 10", f"sms = 1{'0' * 26}", "; expected a whole number above 0 and at most 1e15."),
        ("sms = 10", f"sms = {'[' * 5000}", "is TOML that no sheet is"),
        ("sms = 10", f"sms = {'1' * 5000}", "is TOML that no sheet is"),
        ("boost_clock_mhz = 1000", "boost_clock_mhz = 1e308", "is 1e+308; expected a number above 0 and at most 1e24."),
        ("boost_clock_mhz = 1000", f"boost_clock_mhz = 1{'0' * 400}", "; expected a number above 0 and at most 1e24."),
        ('name = "X1"', 'name = "X\\n1"', "name is 'X\\n1'; expected a text of one line"),
        ('name = "X1"', 'name = "\\u001b[31m"', "expected a text of one line, with no control characters."),
        ('name = "X1"', 'name = "  "', "name is '  '; expected a text of one line"),
        ("sms = 10", "sms = 1979-05-27", "; expected a whole number above 0"),
        ("sms = 10", "sms = [10]", "processor.sms is [10]; expected a whole number"),
        (
            "memory_bytes = 1_000_000_000",
            "memory_bytes = 1e9",
            "expected a whole number above 0, written as 80_000_000",
        ),
        ("[shared]", "[shared]\nshared_reserved_per_block = -1", "is -1; expected a whole number of 0 or more."),
        ("sms = 10", "sms = true", "processor.sms is True; expected a whole number"),
        ("sms = 10", "smz = 10", "processor.smz is unknown; did you mean sms?"),
        ("sms = 10", "sms = { value = 10, from = 'x' }", "processor.sms is {'value': 10, 'from': 'x'}; expected"),
        ("sms = 10", "sms = { source = 'x' }", "processor.sms is {'source': 'x'}; expected a figure"),
        ("sms = 10", "sms = { value = 10, source = 1 }", "the source of processor.sms is 1; expected a text"),
        ("boost_clock_mhz = 1000", "boost_clock_mhz = inf", "processor.boost_clock_mhz is inf; expected a number"),
        ("boost_clock_mhz = 1000", "boost_clock_mhz = nan", "processor.boost_clock_mhz is nan; expected a number"),
        ("fp32 = 2.56e12", "", "peaks.fp32 is missing; expected a number above 0, in operations a second"),
        ("fp32 = 2.56e12", "fp32 = 2.56e12\nbf-16 = 1e12", "peaks.bf-16 is unknown; did you mean bf16?"),
        ("[peaks]", "[peeks]", "peeks is unknown; did you mean peaks?"),
        ("[memory]", "sms = 3\n[memory]", None),
        ('name = "X1"', 'name = "X1"\nsms = 3', "sms is unknown; it belongs under [processor]."),
        ('name = "X1"', 'name = ""', "name is ''; expected a text"),
        ('name = "X1"', "", "name is missing; expected a text"),
        ('name = "X1"', 'name = "X1"\nlinks = 3', "links is 3; expected a table, [links]"),
        (
            'name = "X1"',
            'name = "X1"\ncompute_capability = 9.0',
            "compute_capability is 9.0; expected two whole numbers",
        ),
        ("verified = false", 'verified = "no"', "verified is 'no'; expected true or false"),
        (
            "shared_per_block = 49_152",
            "shared_per_block = 200_000",
            "shared.shared_per_block is 200000; expected at most",
        ),
        (
            "cuda_cores_per_sm = 128",
            "cuda_cores_per_sm = 128\nbase_clock_mhz = 2000",
            "expected at most boost_clock_mhz",
        ),
        ("[limits]", "[limits]\nwarp_size = 48", "limits.max_threads_per_sm is 2048; expected whole warps"),
        ("[shared]", "[shared]\nshared_carveouts = [0, 8192]", "shared.shared_carveouts should grow and end with"),
        ("[limits]", "[limits", "is not TOML"),
    ],
)
def test_a_bad_sheet_is_refused_in_one_sentence_that_names_file_and_figure(sheet, old, new, said):
    assert WHOLE.count(old) == 1
    path = sheet(WHOLE.replace(old, new))
    with pytest.raises(gpus.BadSheet) as refused:
        gpus.find(path)
    message = str(refused.value)
    assert message.startswith(str(path))
    assert said is None or said in message
    assert "\n" not in message


def test_a_sheet_may_say_how_fast_the_cpu_beside_it_launches(sheet):
    assert gpus.find(sheet('like = "H200"\nname = "Fast"\n[measured]\nhost_speed = 2')).host_speed == 2
    assert gpus.find("H200").host_speed is None
    with pytest.raises(gpus.BadSheet, match="host_speed is 0; expected a number above 0"):
        gpus.find(sheet('like = "H200"\nname = "Slow"\n[measured]\nhost_speed = 0', "slow.toml"))


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "my.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(gpus.BadSheet, match="not UTF-8"):
        gpus.find(path)


def test_a_sheet_can_start_from_another_gpu(sheet):
    gpu, h200 = gpus.find(sheet('like = "h200"\nname = "H250"\n[memory]\nl2_bytes = 100_000_000')), gpus.find("H200")
    assert (gpu.name, gpu.full_name, gpu.l2_bytes) == ("H250", "H250", 100_000_000)
    assert (gpu.sms, gpu.peaks, gpu.memory_bytes) == (h200.sms, h200.peaks, h200.memory_bytes)
    assert gpu.sources["l2_bytes"] == "my_gpu.toml (no source given)"
    assert gpu.sources["sms"].startswith("like the H200: ")


def test_what_is_like_a_verified_gpu_is_not_verified(sheet):
    assert not gpus.find(sheet('like = "H200"\nname = "H250"')).verified


def test_peaks_follow_the_sms_and_the_clock(sheet):
    """Half of the SMs at twice the clock do as much; half of them alone do half."""
    h200 = gpus.find("H200")
    half = gpus.find(sheet('like = "H200"\nname = "Half"\n[processor]\nsms = 66'))
    even = gpus.find(sheet('like = "H200"\nname = "Even"\n[processor]\nsms = 66\nboost_clock_mhz = 3960', "even.toml"))
    for math, peak in h200.peaks.items():
        assert half.peaks[math] == pytest.approx(peak / 2)
        assert even.peaks[math] == pytest.approx(peak)
    assert half.tensor_clock_mhz == h200.tensor_clock_mhz
    assert even.tensor_clock_mhz == 2 * h200.tensor_clock_mhz
    assert "0.5" in half.sources["peaks.fp32"]


def test_the_achieved_bandwidth_follows_the_bandwidth(sheet):
    gpu = gpus.find(sheet('like = "H200"\nname = "Fast"\n[memory]\nmemory_bandwidth = 9.6e12'))
    assert gpu.achieved_bandwidth == pytest.approx(2 * gpus.find("H200").achieved_bandwidth)


def test_a_peak_that_is_given_does_not_follow(sheet):
    gpu = gpus.find(sheet('like = "H200"\nname = "Half"\n[processor]\nsms = 66\n[peaks]\ntensor-bf16 = 1e15'))
    assert gpu.peaks[Math.TENSOR_BF16] == 1e15
    assert gpu.peaks[Math.FP32] == pytest.approx(gpus.find("H200").peaks[Math.FP32] / 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('like = "H2000"\nname = "Y"', "in like: There is no GPU named 'H2000'; the nearest are H200"),
        ('like = "my_gpu.toml"\nname = "Y"', "in like: There is no GPU named 'my_gpu.toml'"),
        ("like = 3", "like is 3; expected the name of a GPU"),
        ('like = "H200"', "name is missing; expected a text: what is like the H200 is another GPU"),
        ('like = "H200"\nname = "Y"\n[processor]\nsms = 0', "processor.sms is 0; expected a whole number above 0"),
    ],
)
def test_a_bad_like_is_refused(sheet, text, said):
    path = sheet(text)
    with pytest.raises(gpus.BadSheet) as refused:
        gpus.find(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


def test_sheets_are_read_without_torch():
    code = "import sys, undertorch.gpus as g; g.all_gpus(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
