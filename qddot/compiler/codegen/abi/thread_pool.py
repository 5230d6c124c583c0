"""Threads that run parts of a batch loop, as LLVM text: no Python, no GIL.

`@loop(pool, job)` runs all chunks of a job together with the workers and returns when they are done; `@call(pool)` is a
worker, the start of a thread. A chunk is a call of a kernel's loop (`abi.gufunc`) on some of the states. The caller takes
chunks from the front and workers take them from the back, so that a thread mostly writes to memory that it wrote before.

The pool's first word has all that decides who does what: a number of the job, the first and the last chunk that nobody has.
It is changed by compare-and-exchange only, and as long as a chunk is not done its job stays. A worker spins for some
hundred microseconds after a job, because the next one is often near and waking a thread takes long, and then sleeps.
"""

from __future__ import annotations

from qddot.compiler.runtime.pool_layout import (
    ARGUMENTS,
    CHUNK,
    CHUNKS,
    CONDITION,
    COUNT,
    DONE,
    ENVIRONMENT,
    FUNCTION,
    JOB,
    LIMIT,
    LOCK,
    MUTEX,
    SLEEPERS,
    STATES,
    UNLOCK,
    WAIT,
    WAKE,
    WORKERS,
    YIELD,
)
from qddot.compiler.targets.target import Target

_BITS = 24  # of a number of a chunk in the pool's first word
_MASK = (1 << _BITS) - 1
_IDLE_SPINS = 4000
_WAIT_SPINS = 200  # of the caller, for chunks that others have; then it gives way to other threads


def render(target: Target) -> str:
    """The module."""
    hint = target.architecture.spin_hint
    functions = [_grab(), _run_chunk(), _work(), _has_job(), _worker(hint), _run(hint)]
    return "\n".join([target.architecture.declarations, *functions])


def _grab() -> str:
    """The next chunk that nobody has, from the front or the back; -1 if there is none."""
    return f"""define internal i64 @grab(ptr %pool, i1 %in.front) {{
entry:
  br label %try
try:
  %s = load atomic i64, ptr %pool seq_cst, align 8
  %s.low = lshr i64 %s, {_BITS}
  %low = and i64 %s.low, {_MASK}
  %high = and i64 %s, {_MASK}
  %any = icmp ult i64 %low, %high
  br i1 %any, label %take, label %none
take:
  %before = sub i64 %high, 1
  %index = select i1 %in.front, i64 %low, i64 %before
  %change = select i1 %in.front, i64 {1 << _BITS}, i64 -1
  %s1 = add i64 %s, %change
  %pair = cmpxchg ptr %pool, i64 %s, i64 %s1 seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %got, label %try
got:
  ret i64 %index
none:
  ret i64 -1
}}
"""


def _run_chunk() -> str:
    """One chunk: a call of the kernel's loop."""
    return f"""define internal void @run_chunk(ptr %job, i64 %index) {{
entry:
{_load("function", "ptr", "%job", FUNCTION)}
{_load("n", "i64", "%job", STATES)}
{_load("chunk", "i64", "%job", CHUNK)}
{_load("count", "i64", "%job", COUNT)}
{_load("env", "ptr", "%job", ENVIRONMENT)}
  %first = mul i64 %index, %chunk
  %left = sub i64 %n, %first
  %part = icmp ult i64 %left, %chunk
  %states = select i1 %part, i64 %left, i64 %chunk
  %dimensions = alloca i64
  store i64 %states, ptr %dimensions
  %arguments = alloca ptr, i64 %count
  %bases = getelementptr i64, ptr %job, i64 {ARGUMENTS}
  %steps = getelementptr i64, ptr %bases, i64 %count
  br label %argument
argument:
  %k = phi i64 [ 0, %entry ], [ %k1, %argument ]
  %base.p = getelementptr i64, ptr %bases, i64 %k
  %base = load i64, ptr %base.p
  %step.p = getelementptr i64, ptr %steps, i64 %k
  %step = load i64, ptr %step.p
  %offset = mul i64 %first, %step
  %at = add i64 %base, %offset
  %to = getelementptr i64, ptr %arguments, i64 %k
  store i64 %at, ptr %to
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %count
  br i1 %more, label %argument, label %call
call:
  call void %function(ptr %arguments, ptr %dimensions, ptr %steps, ptr %env)
  ret void
}}
"""


def _work() -> str:
    """Chunks, as long as there are some."""
    return f"""define internal void @work(ptr %pool, i1 %in.front) {{
entry:
  br label %next
next:
  %index = call i64 @grab(ptr %pool, i1 %in.front)
  %some = icmp sge i64 %index, 0
  br i1 %some, label %run, label %done
run:
{_load("job", "ptr", "%pool", JOB)}
  call void @run_chunk(ptr %job, i64 %index)
  %done.p = getelementptr i64, ptr %pool, i64 {DONE}
  %old = atomicrmw add ptr %done.p, i64 1 seq_cst
  br label %next
done:
  ret void
}}
"""


def _has_job() -> str:
    """Whether there is something to do for a worker."""
    return f"""define internal i1 @has_job(ptr %pool, i64 %worker) {{
  %s = load atomic i64, ptr %pool seq_cst, align 8
  %s.low = lshr i64 %s, {_BITS}
  %low = and i64 %s.low, {_MASK}
  %high = and i64 %s, {_MASK}
  %any = icmp ult i64 %low, %high
  %limit.p = getelementptr i64, ptr %pool, i64 {LIMIT}
  %limit = load atomic i64, ptr %limit.p seq_cst, align 8
  %takes.part = icmp ult i64 %worker, %limit
  %yes = and i1 %any, %takes.part
  ret i1 %yes
}}
"""


def _worker(hint: str) -> str:
    """A thread: waits for jobs, for ever."""
    return f"""define ptr @call(ptr %pool) {{
entry:
  %workers = getelementptr i64, ptr %pool, i64 {WORKERS}
  %worker = atomicrmw add ptr %workers, i64 1 seq_cst
  %sleepers = getelementptr i64, ptr %pool, i64 {SLEEPERS}
  %mutex = getelementptr i64, ptr %pool, i64 {MUTEX}
  %condition = getelementptr i64, ptr %pool, i64 {CONDITION}
{_load("lock", "ptr", "%pool", LOCK)}
{_load("unlock", "ptr", "%pool", UNLOCK)}
{_load("wait", "ptr", "%pool", WAIT)}
  br label %idle
idle:
  br label %spin
spin:
  %k = phi i64 [ 0, %idle ], [ %k1, %pause ]
  %now = call i1 @has_job(ptr %pool, i64 %worker)
  br i1 %now, label %work, label %pause
work:
  call void @work(ptr %pool, i1 false)
  br label %idle
pause:
{hint}
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, {_IDLE_SPINS}
  br i1 %more, label %spin, label %sleep
sleep:
  %locked = call i32 %lock(ptr %mutex)
  %asleep = atomicrmw add ptr %sleepers, i64 1 seq_cst
  br label %check
check:
  %then = call i1 @has_job(ptr %pool, i64 %worker)
  br i1 %then, label %awake, label %wait.more
wait.more:
  %woken = call i32 %wait(ptr %condition, ptr %mutex)
  br label %check
awake:
  %fewer = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  %unlocked = call i32 %unlock(ptr %mutex)
  br label %idle
}}
"""


def _run(hint: str) -> str:
    """A job: wakes the workers, takes part, and waits for the last of them."""
    return f"""define void @loop(ptr %pool, ptr %job) {{
entry:
{_load("chunks", "i64", "%job", CHUNKS)}
  %job.p = getelementptr ptr, ptr %pool, i64 {JOB}
  store ptr %job, ptr %job.p
  %done.p = getelementptr i64, ptr %pool, i64 {DONE}
  store atomic i64 0, ptr %done.p seq_cst, align 8
  %s = load atomic i64, ptr %pool seq_cst, align 8
  %number = lshr i64 %s, {2 * _BITS}
  %number1 = add i64 %number, 1
  %number2 = shl i64 %number1, {2 * _BITS}
  %s1 = or i64 %number2, %chunks
  store atomic i64 %s1, ptr %pool seq_cst, align 8
  fence seq_cst
  %sleepers = getelementptr i64, ptr %pool, i64 {SLEEPERS}
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %wakes = icmp ne i64 %asleep, 0
  br i1 %wakes, label %wake, label %work
wake:
  %mutex = getelementptr i64, ptr %pool, i64 {MUTEX}
  %condition = getelementptr i64, ptr %pool, i64 {CONDITION}
{_load("lock", "ptr", "%pool", LOCK)}
{_load("unlock", "ptr", "%pool", UNLOCK)}
{_load("signal", "ptr", "%pool", WAKE)}
  %locked = call i32 %lock(ptr %mutex)
  %signalled = call i32 %signal(ptr %condition)
  %unlocked = call i32 %unlock(ptr %mutex)
  br label %work
work:
  call void @work(ptr %pool, i1 true)
{_load("give.way", "ptr", "%pool", YIELD)}
  br label %wait
wait:
  %k = phi i64 [ 0, %work ], [ %k1, %again ]
  %done = load atomic i64, ptr %done.p seq_cst, align 8
  %all = icmp eq i64 %done, %chunks
  br i1 %all, label %end, label %pause
pause:
{hint}
  %k1 = add i64 %k, 1
  %long = icmp ugt i64 %k1, {_WAIT_SPINS}
  br i1 %long, label %yield, label %again
yield:
  %yielded = call i32 %give.way()
  br label %again
again:
  br label %wait
end:
  ret void
}}
"""


def _load(name: str, kind: str, base: str, word: int) -> str:
    return f"  %{name}.p = getelementptr i64, ptr {base}, i64 {word}\n  %{name} = load {kind}, ptr %{name}.p"
