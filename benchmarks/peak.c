// The machine's limit, measured: fused multiply-adds a second in float64 on one thread, counted a number, not a vector.

#include <time.h>

#if defined __AVX512F__
enum { WIDTH = 64 };
#elif defined __AVX__
enum { WIDTH = 32 };
#else
enum { WIDTH = 16 };
#endif
typedef double Vector __attribute__((vector_size(WIDTH)));

enum { CHAINS = 12, LANES = WIDTH / 8 }; // enough independent chains to hide the latency of four cycles on two units

__attribute__((visibility("default"))) double bench_peak(long steps)
{
  Vector x[CHAINS], factor, offset;
  for (int lane = 0; lane < LANES; ++lane)
  {
    factor[lane] = 0.999, offset[lane] = 1e-3;
    for (int k = 0; k < CHAINS; ++k)
      x[k][lane] = k + lane;
  }
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (long step = 0; step < steps; ++step)
    for (int k = 0; k < CHAINS; ++k)
      x[k] = x[k] * factor + offset;
  clock_gettime(CLOCK_MONOTONIC, &end);
  Vector sum = x[0];
  for (int k = 1; k < CHAINS; ++k)
    sum += x[k];
  volatile double kept = sum[0]; // or the loop would be left out
  (void)kept;
  const double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
  return (double)steps * CHAINS * LANES / seconds;
}
