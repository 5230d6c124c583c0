/* Runs an exported function on a bare Cortex-M4F and says its results in hexadecimal, then the stack that it used.
 * case.h gives REAL, N, COUNT, the states of three vectors each, and CALL(q, v, a, tau). */
#include <stddef.h>
#include <stdint.h>
#include "case.h"

extern char top[];
void reset(void);

__attribute__((section(".vectors"), used)) static const void *const vectors[2] = {top, (const void *)reset};

static void semihosting(int operation, const void *argument)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void say(const void *little_endian, size_t size)
{
    const unsigned char *bytes = little_endian;
    char text[20];
    size_t n = 0;
    for (size_t k = size; k-- > 0;) {
        text[n++] = "0123456789abcdef"[bytes[k] >> 4];
        text[n++] = "0123456789abcdef"[bytes[k] & 15];
    }
    text[n++] = '\n';
    text[n] = 0;
    semihosting(4, text); /* SYS_WRITE0 */
}

#define PAINT 0xa5a5a5a5u
#define PAINTED 4096 /* words below the stack pointer */

static uint32_t *stack_pointer(void)
{
    uint32_t *sp;
    __asm__ volatile("mov %0, sp" : "=r"(sp));
    return sp;
}

__attribute__((noinline)) static uint32_t one(const REAL *x, REAL *tau)
{
    volatile uint32_t *sp = stack_pointer();
    for (int k = 1; k <= PAINTED; k++)
        sp[-k] = PAINT;
    CALL(x, x + N, x + 2 * N, tau);
    int deepest = PAINTED;
    while (deepest > 0 && sp[-deepest] == PAINT)
        deepest--;
    return (uint32_t)deepest * 4;
}

void reset(void)
{
    *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20; /* the FPU on */
    __asm__ volatile("dsb\n isb");
    uint32_t most = 0;
    for (int k = 0; k < COUNT; k++) {
        REAL tau[N];
        const uint32_t used = one(states[k], tau);
        most = used > most ? used : most;
        for (int i = 0; i < N; i++)
            say(&tau[i], sizeof tau[i]);
    }
    say(&most, sizeof most);
    semihosting(0x18, (const void *)0x20026); /* SYS_EXIT, the application's own */
}
