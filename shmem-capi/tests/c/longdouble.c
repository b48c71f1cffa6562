/* long double by value and in reductions: all bits of the significand, infinities, zeros of both signs, NaN. */
#include <math.h>
#include <shmem.h>
#include <string.h>

#include "check.h"

static long double there, source[4], dest[4];

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
    const long double fine = 1.0L + 0x1p-63L;
    shmem_longdouble_p(&there, fine * (me + 1), right);
    shmem_barrier_all();
    CHECK(there == fine * (left + 1));
    CHECK(shmem_longdouble_g(&there, right) == fine * (me + 1));
    shmem_barrier_all();
    shmem_ctx_longdouble_p(SHMEM_CTX_DEFAULT, &there, -fine, right);
    shmem_quiet();
    CHECK(shmem_ctx_longdouble_g(SHMEM_CTX_DEFAULT, &there, right) == -fine);
    /* The registers of the x87 are free again: eight more would not fit. */
    long double sum = 0;
    for (int i = 0; i < 20; i++) sum += shmem_longdouble_g(&there, right);
    CHECK(sum == -20 * fine);
    shmem_barrier_all();

    source[0] = me == 0 ? 0x1p-63L : 1.0L / n;
    source[1] = me == n - 1 ? -0.0L : 0.0L;
    source[2] = me == n / 2 ? (long double)NAN : (long double)me;
    source[3] = me % 2 ? -(long double)INFINITY : (long double)me;
    /* Padding does not count. */
    for (int i = 0; i < 4; i++) memset((char *)&source[i] + 10, 0x50 + me, 6);
    CHECK(shmem_longdouble_sum_reduce(SHMEM_TEAM_WORLD, dest, source, 4) == 0);
    long double expected = 0x1p-63L;
    for (int pe = 1; pe < n; pe++) expected += 1.0L / n;
    CHECK(fabsl(dest[0] - expected) <= 0x1p-62L && isnan(dest[2]) && (n == 1 || isinf(dest[3])));
    CHECK(shmem_longdouble_min_reduce(SHMEM_TEAM_WORLD, dest, source, 4) == 0);
    CHECK(dest[1] == 0 && signbit(dest[1]) && isnan(dest[2]) && (n == 1 || dest[3] == -(long double)INFINITY));
    CHECK(shmem_longdouble_max_reduce(SHMEM_TEAM_WORLD, dest, source, 4) == 0);
    CHECK(dest[1] == 0 && (n == 1) == !!signbit(dest[1]) && isnan(dest[2]) && dest[3] == (n - 1) / 2 * 2);
    source[0] = fine;
    CHECK(shmem_longdouble_prod_reduce(SHMEM_TEAM_WORLD, dest, source, 1) == 0);
    expected = fine;
    for (int pe = 1; pe < n; pe++) expected *= fine;
    CHECK(dest[0] == expected);
    shmem_finalize();
    return 0;
}
