/* double_pendulum_forward_dynamics
 *
 * robot       double_pendulum: 2 moving links, nq = 2, nv = 2
 * function    forward_dynamics by composite_body_factored, double precision
 * equation    M(q) a + bias(q, v) = tau + passive(q, v)
 * q[2]        hinge1 (rad), hinge2 (rad)
 * v[2]        velocities, in the order of q
 * tau[2]      joint forces, N m or N, in the order of v
 * a[2]        accelerations, in the order of v; may be one of the inputs
 * operations  13 mul, 12 add, 1 div, 0 sqrt, 4 sincos
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

#if DBL_MANT_DIG < 53
#error "doubles are shorter than 64 bits here; export float32"
#endif

#if FLT_EVAL_METHOD < 0 || FLT_EVAL_METHOD == 2
#error "sine and cosine need doubles that are rounded to doubles; on x86 compile with -msse2 -mfpmath=sse"
#endif

static void double_pendulum_forward_dynamics_sincos(double x, double *s, double *c)
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

#ifdef __cplusplus
extern "C" {
#endif
void double_pendulum_forward_dynamics(const double q[2], const double v[2], const double tau[2], double a[2]);
#ifdef __cplusplus
}
#endif

void double_pendulum_forward_dynamics(const double q[2], const double v[2], const double tau[2], double a[2])
{
    /* bob1: T */
    double sin_q0, cos_q0;
    double_pendulum_forward_dynamics_sincos(q[0], &sin_q0, &cos_q0);

    /* bob2: T */
    double sin_q1, cos_q1;
    double_pendulum_forward_dynamics_sincos(q[1], &sin_q1, &cos_q1);

    /* bob1: acc */
    const double t0 = cos_q0 * 9.81;
    const double t1 = sin_q0 * 9.81;

    /* bob2: w */
    const double t2 = v[0] + v[1];

    /* bob2: U */
    const double t3 = t2 * t2;

    /* bob2: acc */
    const double t4 = fma(sin_q1, fma(v[0], v[0], t0), cos_q1 * t1);

    /* bob1: F */
    const double t5 = fma(sin_q0, 19.62, fma(-sin_q1, t3, t4));

    /* bob1: I_C */
    const double t6 = fma(cos_q1, 2.0, 3.0);

    /* bob1: f_C */
    const double t7 = cos_q1 + 1.0;

    /* results */
    const double t8 = tau[1] - t4;
    const double t9 = 1.0 / fma(-t7, t7, t6) * fma(-t7, t8, tau[0] - t5);
    const double t10 = fma(-t7, t9, t8);
    a[0] = t9;
    a[1] = t10;
}
