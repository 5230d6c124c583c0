/* double_pendulum_inverse_dynamics
 *
 * robot       double_pendulum: 2 moving links, nq = 2, nv = 2
 * function    inverse_dynamics by newton_euler_classical, single precision
 * equation    M(q) a + bias(q, v) = tau + passive(q, v)
 * q[2]        hinge1 (rad), hinge2 (rad)
 * v[2]        velocities, in the order of q
 * a[2]        accelerations, in the order of v
 * tau[2]      joint forces, N m or N, in the order of v; may be one of the inputs
 * operations  10 mul, 10 add, 0 div, 0 sqrt, 4 sincos
 * sincos      libm's
 * stack       not measured: no C compiler was asked
 * code        not measured
 *
 * Written by qddot VERSION. SI units. No allocation, no state: threads and interrupts may call it.
 * A compiler must not contract or reassociate: -std=c99 or -ffp-contract=off, and never -ffast-math.
 */
#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif
void double_pendulum_inverse_dynamics(const float q[2], const float v[2], const float a[2], float tau[2]);
#ifdef __cplusplus
}
#endif

void double_pendulum_inverse_dynamics(const float q[2], const float v[2], const float a[2], float tau[2])
{
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif
    /* bob1: T */
    const float cos_q0 = cosf(q[0]);
    const float sin_q0 = sinf(q[0]);

    /* bob2: T */
    const float cos_q1 = cosf(q[1]);
    const float sin_q1 = sinf(q[1]);

    /* bob1: U */
    const float t0 = v[0] * v[0];

    /* bob1: acc */
    const float t1 = cos_q0 * 9.81f;
    const float t2 = sin_q0 * 9.81f;

    /* bob1: F */
    const float t3 = a[0] * 2.0f + sin_q0 * 19.62f;

    /* bob2: w */
    const float t4 = v[0] + v[1];

    /* bob2: wdot */
    const float t5 = a[0] + a[1];

    /* bob2: U */
    const float t6 = t4 * t4;

    /* bob2: acc */
    const float t7 = sin_q1 * (t0 + t1) + cos_q1 * (a[0] + t2);

    /* bob2: F */
    const float t8 = t5 + t7;

    /* bob1: F */
    const float t9 = t3 + (t8 - (sin_q1 * t6 - cos_q1 * t5));

    /* results */
    tau[0] = t9;
    tau[1] = t8;
}
