"""Programs as text: LLVM IR and C."""
