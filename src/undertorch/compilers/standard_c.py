"""What nvcc finds in the host's C headers and NVRTC has nowhere: constants of <math.h>, <float.h> and <limits.h>, types
and limits of <stdint.h>.

Values: IEEE 754 binary32 and binary64 and ISO C17, 5.2.4.2 and 7.20, for the sizes that CUDA's types have; `M_PI` and
its kin: POSIX, <math.h>. Types are the ones that CUDA's own <cuda/std/cstdint> declares under NVRTC.
"""

NAME = "undertorch_standard_c.h"
EMPTY = tuple(
    name
    for stem in ("assert", "float", "limits", "math", "stddef", "stdint", "stdio", "stdlib", "string")
    for name in (f"{stem}.h", f"c{stem}")
)
"""Headers that may be included and hold nothing: NVRTC knows their functions by itself, the rest stands in NAME."""

# __builtin_bit_cast: what __int_as_float says cannot initialise a constexpr.
_MACROS = {
    "INFINITY": "__builtin_bit_cast(float, 0x7f800000)",
    "HUGE_VALF": "INFINITY",
    "HUGE_VAL": "__builtin_bit_cast(double, 0x7ff0000000000000LL)",
    "NAN": "__builtin_bit_cast(float, 0x7fc00000)",
    "M_E": "2.7182818284590452354",
    "M_LOG2E": "1.4426950408889634074",
    "M_LOG10E": "0.43429448190325182765",
    "M_LN2": "0.69314718055994530942",
    "M_LN10": "2.30258509299404568402",
    "M_PI": "3.14159265358979323846",
    "M_PI_2": "1.57079632679489661923",
    "M_PI_4": "0.78539816339744830962",
    "M_1_PI": "0.31830988618379067154",
    "M_2_PI": "0.63661977236758134308",
    "M_2_SQRTPI": "1.12837916709551257390",
    "M_SQRT2": "1.41421356237309504880",
    "M_SQRT1_2": "0.70710678118654752440",
    "FLT_RADIX": "2",
    "FLT_MANT_DIG": "24",
    "FLT_DIG": "6",
    "FLT_EPSILON": "1.1920928955078125e-7f",
    "FLT_MIN": "1.17549435082228750797e-38f",
    "FLT_MAX": "3.40282346638528859812e+38f",
    "DBL_MANT_DIG": "53",
    "DBL_DIG": "15",
    "DBL_EPSILON": "2.2204460492503131e-16",
    "DBL_MIN": "2.2250738585072014e-308",
    "DBL_MAX": "1.7976931348623157e+308",
    "CHAR_BIT": "8",
    "SCHAR_MAX": "127",
    "SCHAR_MIN": "(-128)",
    "UCHAR_MAX": "255",
    "SHRT_MAX": "32767",
    "SHRT_MIN": "(-32768)",
    "USHRT_MAX": "65535",
    "INT_MAX": "2147483647",
    "INT_MIN": "(-2147483647 - 1)",
    "UINT_MAX": "4294967295U",
    "LLONG_MAX": "9223372036854775807LL",
    "LLONG_MIN": "(-9223372036854775807LL - 1)",
    "ULLONG_MAX": "18446744073709551615ULL",
    "INT8_MAX": "127",
    "INT8_MIN": "(-128)",
    "UINT8_MAX": "255",
    "INT16_MAX": "32767",
    "INT16_MIN": "(-32768)",
    "UINT16_MAX": "65535",
    "INT32_MAX": "2147483647",
    "INT32_MIN": "(-2147483647 - 1)",
    "UINT32_MAX": "4294967295U",
    "INT64_MAX": "9223372036854775807LL",
    "INT64_MIN": "(-9223372036854775807LL - 1)",
    "UINT64_MAX": "18446744073709551615ULL",
    "SIZE_MAX": "18446744073709551615UL",
}
_TYPES = {
    "int8_t": "signed char",
    "int16_t": "signed short",
    "int32_t": "signed int",
    "int64_t": "signed long long",
    "uint8_t": "unsigned char",
    "uint16_t": "unsigned short",
    "uint32_t": "unsigned int",
    "uint64_t": "unsigned long long",
    "intptr_t": "signed long long",
    "uintptr_t": "unsigned long long",
}

TEXT = "\n".join(
    (
        *(f"#ifndef {name}\n#define {name} {value}\n#endif" for name, value in _MACROS.items()),
        *(f"typedef {type} {name};" for name, type in _TYPES.items()),
        "",
    )
)
HEADERS = {NAME: TEXT, **dict.fromkeys(EMPTY, "")}
"""Text of each header by name."""
