"""The machine's answers against the definitions: which forms are right bit for bit, which within their stated error."""

from simt.conformance import cases, programs
from simt.conformance.atomics import atomic_cases
from simt.conformance.forms import PLAIN
from simt.conformance.meaning import is_bounded, meaning
from simt.conformance.memory import load_cases, sent_cases, store_cases
from simt.conformance.tensor import held_cases, outside
from simt.conformance.warps import warp_cases
from undertorch.gpus import find
from undertorch.simt.ptx.opcodes import match

GPU = "H200"


def wrong_answers(program):
    """(form, operands, answer, wanted) of each result that is not what it has to be; for a form the first few."""
    output = programs.on_machine(program, find(GPU))
    at, rows = 0, list(zip(*(i.tolist() for i in program.inputs), strict=True))
    for trial in program.trials:
        parts = program.results[at : at + len(trial.results)]
        at += len(trial.results)
        rule, told = meaning(trial), 0
        answers = zip(*(part.of(output).tolist() for part in parts), strict=True)
        for operands, answer in zip(rows, answers, strict=True):
            for want, got in zip(rule(*operands, *trial.fixed), answer, strict=True):
                if (want(got) if callable(want) else want == got) or told >= 3:
                    continue
                told += 1
                yield trial.name, [hex(o) for o in operands], hex(got), want if callable(want) else hex(want)


def all_cases(forms):
    """Of memory, lanes, barriers and control."""
    for made in (load_cases, store_cases, sent_cases, atomic_cases, warp_cases, held_cases):
        yield from made(forms)


def case_differences(case, **options):
    """Where memory is not what it has to be after a launch on the machine."""
    arguments = cases.on_machine(case, find(GPU), **options)
    return list(outside(case, arguments) if case.bounded else cases.differences(case, arguments))


def held_forms():
    """Every form that ptxas takes: `exact`, `bounded`, `wrong` or `not tried`."""
    forms = programs.real_forms()
    held = dict.fromkeys(forms, "not tried")
    plain = {o: t for o, t in forms.items() if match(o).form in PLAIN}
    for program in programs.plain_programs(plain):
        wrong = {name.split()[0] for name, *_ in wrong_answers(program)}
        for trial in program.trials:
            if trial.opcode in wrong or held[trial.opcode] == "wrong":
                held[trial.opcode] = "wrong"
            else:
                held[trial.opcode] = "bounded" if is_bounded(trial.opcode) else "exact"
    for case in all_cases(forms):
        right = not case_differences(case)
        for opcode in case.forms:
            if not right or held[opcode] == "wrong":
                held[opcode] = "wrong"
            elif held[opcode] != "bounded":
                held[opcode] = "bounded" if case.bounded else "exact"
    return held
