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
 * sincos      polynomials of its own, libm's beyond 1e5 rad
 * stack       not measured: no C compiler was asked
 * code        not measured
 *
 * Written by qddot VERSION. SI units. No allocation, no state: threads and interrupts may call it.
 * A compiler must not contract or reassociate: -std=c99 or -ffp-contract=off, and never -ffast-math.
 * Without an instruction for fma (-mfma on x86) it is a slow call of libm; export with --no-fma then.
 */
#include <float.h>
#include <math.h>

#if FLT_EVAL_METHOD < 0 || FLT_EVAL_METHOD == 2 || FLT_EVAL_METHOD == 1
#error "sine and cosine need floats that are rounded to floats; on x86 compile with -msse2 -mfpmath=sse"
#endif

static void double_pendulum_inverse_dynamics_sincos(float x, float *s, float *c)
{
    if (!(fabsf(x) <= 100000.0f)) {
        *s = (float)sin((double)x);
        *c = (float)cos((double)x);
        return;
    }
    /* x = n pi/2 + r, |r| <= pi/4 */
    const float shifted = fmaf(x, 0.63661975f, 12582912.0f);
    const float n = shifted - 12582912.0f;
    /* pi/2 comes in three parts; x less n times the first is exact */
    const float r1 = fmaf(-n, 1.5707963f, x);
    const float r2 = fmaf(-n, 7.5497894e-08f, r1);
    const float r = fmaf(-n, 5.3903025e-15f, r2);
    const float z = r * r;
    float p = -0.00019513638f;
    p = fmaf(p, z, 0.008332143f);
    p = fmaf(p, z, -0.16666654f);
    float k = 2.4431203e-05f;
    k = fmaf(k, z, -0.0013887304f);
    k = fmaf(k, z, 0.041666646f);
    const float sine = fmaf(z * r, p, r);
    const float w = fmaf(k, z, -0.5f);
    const float cosine = fmaf(w, z, 1.0f);
    /* quarter turns exchange the two and turn their signs */
    const unsigned long turns = (unsigned long)(long)n;
    const float s1 = (turns & 1U) != 0 ? cosine : sine;
    const float c1 = (turns & 1U) != 0 ? sine : cosine;
    *s = (turns & 2U) != 0 ? -s1 : s1;
    *c = ((turns + 1U) & 2U) != 0 ? -c1 : c1;
}

#ifdef __cplusplus
extern "C" {
#endif
void double_pendulum_inverse_dynamics(const float q[2], const float v[2], const float a[2], float tau[2]);
#ifdef __cplusplus
}
#endif

void double_pendulum_inverse_dynamics(const float q[2], const float v[2], const float a[2], float tau[2])
{
    /* bob1: T */
    float sin_q0, cos_q0;
    double_pendulum_inverse_dynamics_sincos(q[0], &sin_q0, &cos_q0);

    /* bob2: T */
    float sin_q1, cos_q1;
    double_pendulum_inverse_dynamics_sincos(q[1], &sin_q1, &cos_q1);

    /* bob1: acc */
    const float t0 = cos_q0 * 9.81f;

    /* bob1: F */
    const float t1 = fmaf(a[0], 2.0f, sin_q0 * 19.62f);

    /* bob2: w */
    const float t2 = v[0] + v[1];

    /* bob2: wdot */
    const float t3 = a[0] + a[1];

    /* bob2: U */
    const float t4 = t2 * t2;

    /* bob2: acc */
    const float t5 = cos_q1 * fmaf(sin_q0, 9.81f, a[0]);
    const float t6 = fmaf(sin_q1, fmaf(v[0], v[0], t0), t5);

    /* bob2: F */
    const float t7 = t3 + t6;

    /* bob1: F */
    const float t8 = t1 + (t7 - fmaf(sin_q1, t4, -(cos_q1 * t3)));

    /* results */
    tau[0] = t8;
    tau[1] = t7;
}
