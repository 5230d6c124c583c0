// Rollouts by MuJoCo's own mj_step, one sample after another, in the library that its Python module has loaded.

#include <string.h>
#include <time.h>

#include <mujoco/mujoco.h>

#define EXPORT __attribute__((visibility("default")))

// Seconds; `out` has (qpos, qvel) of each sample at its end. The model says the step and the integrator.
EXPORT double run(const mjModel *m, int count, int steps, const double *q, const double *v, double *out)
{
  mjData *d = mj_makeData(m);
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < count; ++i)
  {
    mj_resetData(m, d);
    memcpy(d->qpos, q + (size_t)i * m->nq, m->nq * sizeof(mjtNum));
    memcpy(d->qvel, v + (size_t)i * m->nv, m->nv * sizeof(mjtNum));
    for (int k = 0; k < steps; ++k)
      mj_step(m, d);
    memcpy(out, d->qpos, m->nq * sizeof(mjtNum));
    memcpy(out + m->nq, d->qvel, m->nv * sizeof(mjtNum));
    out += m->nq + m->nv;
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  mj_deleteData(d);
  return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}
