"""Triton writes chains of inlined calls as comments; here they become what PTX has for them."""

from undertorch.simt.frontends.triton.calls import with_calls
from undertorch.simt.program import parsed

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<2>;
	ld.param.b64 %rd1, [k_param_0];
	.loc	2 263 15                        // standard.py:263:15 @[ standard.py:293:36 @[ norm.py:218:20 ] ]
	ld.global.b32 %r1, [%rd1];
	.loc	1 219 4                         // norm.py:219:4
	st.global.b32 [%rd1], %r1;
	ret;
}
	.file	1 "/home/me/norm.py"
	.file	2 "/lib/triton/language/standard.py"
"""


def places(text):
    module, _ = parsed(text)
    found = {}
    for item in module.functions["k"].body:
        if getattr(item, "name", "") in {"ld", "st"} and getattr(item, "place", None) is not None:
            found[item.name] = item.place
    return found


def chain(place):
    while place is not None:
        yield (place.file.rpartition("/")[2], place.line)
        place = place.inlined_at


def test_a_chain_of_two_calls_ends_in_the_users_line():
    found = places(with_calls(PTX))
    assert list(chain(found["ld"])) == [("standard.py", 263), ("standard.py", 293), ("norm.py", 218)]


def test_a_line_that_was_not_inlined_stays_as_it_is():
    assert list(chain(places(with_calls(PTX))["st"])) == [("norm.py", 219)]


def test_a_file_that_the_ptx_does_not_number_leaves_the_comment_a_comment():
    unknown = PTX.replace("@[ norm.py", "@[ other.py")
    assert list(chain(places(with_calls(unknown))["ld"])) == [("standard.py", 263)]
