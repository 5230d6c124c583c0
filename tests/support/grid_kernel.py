"""A kernel for real cards by the launch contract, 2 * q + v for vectors, from LLVM text by hand."""

from __future__ import annotations

from llvmlite import binding as llvm

_NAMES = ("q", "v", "out")


def ptx(length=3, dtype="double", scratch=False, capability="sm_75"):
    """PTX with the functions `rows` and `strided`, which loop over the states that their grid leaves over."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = _PREFIX + "".join(_function(name, length, dtype, scratch) for name in ("rows", "strided"))
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu=capability, features="+ptx64", opt=2)
    return machine.emit_assembly(module)


_PREFIX = 'target triple = "nvptx64-nvidia-cuda"\n' + "".join(
    f"declare i32 @llvm.nvvm.read.ptx.sreg.{x}()\n" for x in ("tid.x", "ntid.x", "ctaid.x", "nctaid.x")
)


def _function(name, length, dtype, scratch):
    parameters = ", ".join(f"ptr addrspace(1) %{x}, i64 %{x}.step, i64 %{x}.axis" for x in _NAMES)
    lines = [f"define ptx_kernel void @{name}(i64 %count, {parameters}, ptr addrspace(1) %scratch) {{", "entry:"]
    for x in ("tid.x", "ntid.x", "ctaid.x", "nctaid.x"):
        lines += [f"  %{x}.word = call i32 @llvm.nvvm.read.ptx.sreg.{x}()", f"  %{x} = zext i32 %{x}.word to i64"]
    lines += ["  %before = mul i64 %ctaid.x, %ntid.x", "  %first = add i64 %before, %tid.x"]
    lines += ["  %all = mul i64 %nctaid.x, %ntid.x", "  br label %test"]
    lines += ["test:", "  %s = phi i64 [ %first, %entry ], [ %next, %work ]"]
    lines += ["  %more = icmp slt i64 %s, %count", "  br i1 %more, label %work, label %done", "work:"]
    for n in range(length):
        for x in _NAMES:
            axis = f"%{x}.axis" if name == "strided" else "1"
            lines += [f"  %{x}.a{n} = mul i64 %s, %{x}.step", f"  %{x}.b{n} = mul i64 {n}, {axis}"]
            lines += [f"  %{x}.c{n} = add i64 %{x}.a{n}, %{x}.b{n}"]
            lines += [f"  %{x}.p{n} = getelementptr {dtype}, ptr addrspace(1) %{x}, i64 %{x}.c{n}"]
        lines += [f"  %q{n} = load {dtype}, ptr addrspace(1) %q.p{n}", f"  %v{n} = load {dtype}, ptr addrspace(1) %v.p{n}"]
        lines += [f"  %t{n} = fadd {dtype} %q{n}, %q{n}", f"  %r{n} = fadd {dtype} %t{n}, %v{n}"]
        if scratch:  # there and back
            lines += [f"  %k{n} = getelementptr {dtype}, ptr addrspace(1) %scratch, i64 %first"]
            lines += [f"  store volatile {dtype} %r{n}, ptr addrspace(1) %k{n}"]
            lines += [f"  %u{n} = load volatile {dtype}, ptr addrspace(1) %k{n}"]
        lines += [f"  store {dtype} %{'u' if scratch else 'r'}{n}, ptr addrspace(1) %out.p{n}"]
    lines += ["  %next = add i64 %s, %all", "  br label %test", "done:", "  ret void", "}"]
    return "\n".join(lines) + "\n"
