// MuJoCo's own C functions on the states that Python hands over: results for checking, and seconds for all states.
//
// Built by `benchmarks.native` against the library that the `mujoco` Python module has loaded, so that its mjModel can be
// used here. Only the stages a function needs are run: no collision, no constraints, no actuators, no passive forces.

#include <string.h>
#include <time.h>

#include <mujoco/mujoco.h>

typedef struct
{
  const mjModel *model;
  mjData *data;
  mjtNum *out; // the result of one state: nv, nv × nv or 6 × nv numbers
  mjtNum *ones; // the unit matrix
  const double *q, *v, *a, *tau;
  int count, tip;
} Bench;

enum Function { RNEA, CRBA, ABA, MINVERSE, KINEMATICS, JACOBIAN };

#define EXPORT __attribute__((visibility("default")))

// The arrays of states stay the caller's and must live as long as the bench.
EXPORT Bench *bench_open(const mjModel *model, int tip, int count, const double *q, const double *v, const double *a,
                         const double *tau)
{
  Bench *b = mju_malloc(sizeof(Bench));
  const size_t nv = model->nv;
  *b = (Bench){model, mj_makeData(model), NULL, NULL, q, v, a, tau, count, tip};
  b->out = mju_malloc(sizeof(mjtNum) * nv * (nv > 6 ? nv : 6));
  b->ones = mju_malloc(sizeof(mjtNum) * nv * nv);
  mju_eye(b->ones, model->nv);
  return b;
}

EXPORT void bench_close(Bench *b)
{
  mj_deleteData(b->data);
  mju_free(b->out);
  mju_free(b->ones);
  mju_free(b);
}

static inline void compute(Bench *b, enum Function function, size_t i)
{
  const mjModel *m = b->model;
  mjData *d = b->data;
  const size_t nq = m->nq, nv = m->nv;
  memcpy(d->qpos, b->q + i * nq, nq * sizeof(mjtNum));
  mj_kinematics(m, d);
  if (function == KINEMATICS)
    return;
  mj_comPos(m, d);
  if (function == JACOBIAN)
  {
    mj_jacBody(m, d, b->out + 3 * nv, b->out, b->tip);
    return;
  }
  if (function != RNEA)
    mj_makeM(m, d);
  if (function == CRBA)
    return;
  if (function == MINVERSE)
  {
    mj_factorM(m, d);
    mj_solveM(m, d, b->out, b->ones, m->nv);
    return;
  }
  memcpy(d->qvel, b->v + i * nv, nv * sizeof(mjtNum));
  mj_comVel(m, d);
  if (function == RNEA)
  {
    memcpy(d->qacc, b->a + i * nv, nv * sizeof(mjtNum));
    mj_rne(m, d, 1, b->out);
    return;
  }
  mj_factorM(m, d);
  mj_rne(m, d, 0, d->qfrc_bias);
  mju_sub(d->qfrc_smooth, b->tau + i * nv, d->qfrc_bias, m->nv);
  mj_solveM(m, d, b->out, d->qfrc_smooth, 1);
}

// The result of one state, row-major; returns the place behind it.
static double *store(Bench *b, enum Function function, double *out)
{
  const mjModel *m = b->model;
  const size_t nv = m->nv;
  switch (function)
  {
  case CRBA:
    mj_fullM(m, b->data, out);
    return out + nv * nv;
  case KINEMATICS: // of each body the rotation, then the position
    for (int k = 1; k < m->nbody; ++k, out += 12)
    {
      memcpy(out, b->data->xmat + 9 * k, 9 * sizeof(double));
      memcpy(out + 9, b->data->xpos + 3 * k, 3 * sizeof(double));
    }
    return out;
  default:;
    const size_t size = function == MINVERSE ? nv * nv : function == JACOBIAN ? 6 * nv : nv;
    memcpy(out, b->out, size * sizeof(double));
    return out + size;
  }
}

// The results of the first `count` states, one behind the other.
EXPORT void bench_run(Bench *b, int function, size_t count, double *out)
{
  for (size_t i = 0; i < count; ++i)
  {
    compute(b, function, i);
    out = store(b, function, out);
  }
}

// Seconds for all states.
EXPORT double bench_time(Bench *b, int function)
{
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < b->count; ++i)
    compute(b, function, i);
  clock_gettime(CLOCK_MONOTONIC, &end);
  return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}
