"""What one state computes, as LLVM IR."""
