"""The words of a pool of threads and of its jobs, which generated code reads (`codegen.abi.thread_pool`)."""

# Words of a pool, each group in cache lines of its own; mutex and condition variable are the system's
STATE, DONE, SLEEPERS, LIMIT, JOB, WORKERS, LOCK, UNLOCK, WAIT, WAKE, YIELD, MUTEX, CONDITION = (
    *(0, 8, 16, 17, 18, 19),
    *(24, 25, 26, 27, 28),
    *(32, 64),
)
POOL_WORDS = 96

# Words of a job; then the memory of each argument, and the strides as NumPy's loops have them
FUNCTION, STATES, CHUNK, CHUNKS, COUNT, ENVIRONMENT, ARGUMENTS = range(7)

MAX_CHUNKS = 1 << 20
