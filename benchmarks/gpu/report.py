"""What a run prints."""

from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.cases import FUNCTIONS
from benchmarks.gpu.targets import CARD, Verdict, found_rows, grid_figures, verdicts


def machine_line(machine: dict[str, Any]) -> str:
    copy = f"copies read and write {machine['copy_bytes_per_second'] / 1e12:.2f} TB/s"
    rates = " and ".join(f"{x / 1e12:.1f}e12 in {t}" for t, x in machine["multiply_adds_per_second"].items())
    return f"{machine['card']} ({machine['arch']}), CUDA {machine.get('cuda', '–')}: {copy}; {rates} multiply-adds a second"


def row_line(row: dict[str, Any]) -> str:
    head = f"{row['robot']:<16}{FUNCTIONS[row['function']].title:<18}{row['dtype']:<8}{row['layout']:<7}{row['batch']:>9,}"
    if "error" in row and "seconds" not in row:
        return f"{head}  ERROR {row['error']}"
    bits = "same bits" if row["bits_equal"] else "other bits" if row["agrees"] else "WRONG RESULTS"
    return (
        f"{head} {row['states_per_second'] / 1e9:>9.4f} e9/s {1e9 * row['seconds'] / row['batch']:>9.4f} ns "
        f"{row['bytes_per_second'] / 1e12:>6.2f} TB/s ({row['copy_share']:4.0%} of copies; {row['share']:4.0%} of "
        f"{row['bound']}) error {row['error']:.1e}, {bits}"
    )


def kernel_line(kernel: dict[str, Any]) -> str:
    head = f"{kernel['robot']:<16}{FUNCTIONS[kernel['function']].title:<18}{kernel['dtype']:<8}"
    times = (
        f"{kernel['instructions']:,} operations, {kernel['numbers']} numbers; compiled in {kernel['compile_seconds']:.1f} s"
    )
    if "assemble_seconds" in kernel:
        times += f", assembled in {kernel['assemble_seconds']:.1f} s"
    if "ready_seconds" in kernel:
        times += f", ready from the cache in {1e3 * kernel['ready_seconds']:.0f} ms"
    return f"{head}{times}; {facts_text(kernel['facts'])}" if "facts" in kernel else f"{head}{times}"


def facts_text(facts: dict[str, Any]) -> str:
    """Registers, local memory and occupancy, of the kernel for rows."""
    f = facts["rows"][0]
    return (
        f"{f['registers']} registers, {f['local_bytes']} B local, {f.get('shared_bytes', 0)} B shared, occupancy "
        f"{f['occupancy']:.2f}, {facts['threads']} threads a block, {facts['groups']} a state"
    )


def call_line(robot: str, row: dict[str, Any]) -> str:
    head = f"one call, {robot}, 256 states, arrays of {row['arrays']}{', out=' if row['out'] else ''}"
    return f"{head}: ERROR {row['error']}" if "error" in row else f"{head}: {1e6 * row['seconds']:.1f} µs"


def frax_line(row: dict[str, Any]) -> str:
    what = FUNCTIONS[row["function"]].title if row["function"] in FUNCTIONS else row["function"].replace("_", " ")
    head = f"frax {row['robot']} {what} {row['batch']:,}"
    return f"{head}: ERROR {row['error']}" if "error" in row else f"{head}: {row['states_per_second'] / 1e9:.4f} e9/s"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def targets(data: dict[str, Any]) -> str:
    """The table of targets, and how many are met; what was not measured is neither met nor missed."""
    found = verdicts(data)
    data["targets"] = [v._asdict() for v in found]
    words = {True: "pass", False: "FAIL", None: "not measured"}
    table = markdown(("target", "wanted", "found", ""), [(v.what, v.wanted, v.found, words[v.met]) for v in found])
    counts = ", ".join(f"{_count(found, met)} {word}" for met, word in words.items())
    card = data["machine"].get("card", "")
    other = "" if CARD in card else f"\nThe targets are of an {CARD}; this is {card or 'no card'}."
    return f"\nTargets: {counts}{other}\n\n{table}"


def _count(found: list[Verdict], met: bool | None) -> int:
    return sum(v.met is met for v in found)


def table(data: dict[str, Any]) -> str:
    """States a second in float32 by batch, arrays in rows, beside GRiD's."""
    known, rows = grid_figures(), []
    frax = {(r["robot"], r["function"], r["batch"]): r for r in data["frax"] if "seconds" in r}
    for r in found_rows(data, dtype="float32", layout="row"):
        key = r["robot"], r["function"], r["batch"]
        ours = r["states_per_second"] / 1e9
        theirs, jax = known.get(key), frax.get(key)
        versus = "–" if theirs is None else f"{1.0 / theirs:.4f} ({ours * theirs:.0f}×)"
        other = "–" if jax is None else f"{jax['states_per_second'] / 1e9:.4f}"
        roof = f"{r['roofline_states_per_second'] / 1e9:.3f}"
        rows.append((r["robot"], FUNCTIONS[r["function"]].title, f"{r['batch']:,}", f"{ours:.4f}", roof, versus, other))
    return "\n" + markdown(
        ("robot", "function", "batch", "1e9 states/s", "roofline", "GRiD, H200", "frax"), sorted(rows, key=_order)
    )


def _order(row: tuple[str, ...]) -> tuple[str, str, int]:
    return row[0], row[1], int(row[2].replace(",", ""))
