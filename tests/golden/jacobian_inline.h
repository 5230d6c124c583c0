/* double_pendulum_jacobian_bob2
 *
 * robot       double_pendulum: 2 moving links, nq = 2, nv = 2
 * function    jacobian of 'bob2' by kinematics, double precision
 * equation    V = J v
 * q[2]        hinge1 (rad), hinge2 (rad)
 * J[12]       the body Jacobian of the frame, rows angular then linear, in the frame's own coordinates, 6 x
 *             2 row by row; must not overlap an input
 * operations  0 mul, 0 add, 0 div, 0 sqrt, 2 sincos
 * sincos      polynomials of its own, libm's beyond 1e5 rad
 * stack       not measured: no C compiler was asked
 * code        not measured
 *
 * Written by qddot VERSION. SI units. No allocation, no state: threads and interrupts may call it.
 * A compiler must not contract or reassociate: -std=c99 or -ffp-contract=off, and never -ffast-math.
 * Without an instruction for fma (-mfma on x86) it is a slow call of libm; export with --no-fma then.
 */
#ifndef QDDOT_double_pendulum_jacobian_bob2_H
#define QDDOT_double_pendulum_jacobian_bob2_H

#include <float.h>
#include <math.h>

#if DBL_MANT_DIG < 53
#error "doubles are shorter than 64 bits here; export float32"
#endif

#if FLT_EVAL_METHOD < 0 || FLT_EVAL_METHOD == 2
#error "sine and cosine need doubles that are rounded to doubles; on x86 compile with -msse2 -mfpmath=sse"
#endif

static void double_pendulum_jacobian_bob2_sincos(double x, double *s, double *c)
{
    if (!(fabs(x) <= 100000.0)) {
        *s = sin(x);
        *c = cos(x);
        return;
    }
    /* x = n pi/2 + r, |r| <= pi/4 */
    const double shifted = fma(x, 0.6366197723675814, 6755399441055744.0);
    const double n = shifted - 6755399441055744.0;
    /* pi/2 comes in three parts; x less n times the first is exact */
    const double r1 = fma(-n, 1.5707963267341256, x);
    const double r2 = fma(-n, 6.077100506303966e-11, r1);
    const double r = fma(-n, 2.0222662487959506e-21, r2);
    const double z = r * r;
    double p = 1.58969099521155e-10;
    p = fma(p, z, -2.5050760253406863e-08);
    p = fma(p, z, 2.7557313707070068e-06);
    p = fma(p, z, -0.0001984126982985795);
    p = fma(p, z, 0.00833333333332249);
    p = fma(p, z, -0.16666666666666632);
    double k = -1.1359647557788195e-11;
    k = fma(k, z, 2.087572321298175e-09);
    k = fma(k, z, -2.7557314351390663e-07);
    k = fma(k, z, 2.480158728947673e-05);
    k = fma(k, z, -0.001388888888887411);
    k = fma(k, z, 0.0416666666666666);
    const double sine = fma(z * r, p, r);
    const double w = fma(-0.5, z, 1.0);
    const double cosine = fma(z * z, k, w);
    /* quarter turns exchange the two and turn their signs */
    const unsigned long turns = (unsigned long)(long)n;
    const double s1 = (turns & 1U) != 0 ? cosine : sine;
    const double c1 = (turns & 1U) != 0 ? sine : cosine;
    *s = (turns & 2U) != 0 ? -s1 : s1;
    *c = ((turns + 1U) & 2U) != 0 ? -c1 : c1;
}

static inline void double_pendulum_jacobian_bob2(const double q[2], double J[12])
{
    /* bob2: T */
    double sin_q1, cos_q1;
    double_pendulum_jacobian_bob2_sincos(q[1], &sin_q1, &cos_q1);
    J[6] = -cos_q1;
    J[10] = -sin_q1;

    /* results */
    J[0] = 0.0;
    J[1] = 0.0;
    J[2] = 1.0;
    J[3] = 1.0;
    J[4] = 0.0;
    J[5] = 0.0;
    J[7] = 0.0;
    J[8] = 0.0;
    J[9] = 0.0;
    J[11] = 0.0;
}

#endif
