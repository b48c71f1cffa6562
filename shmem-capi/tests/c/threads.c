/* Threads at once: each with a context of its own, and all with the default one. */
#include <pthread.h>
#include <shmem.h>

#include "check.h"

#define THREADS 4
#define ROUNDS 500

static long counter, own[THREADS][ROUNDS];

static void *work(void *argument)
{
    long thread = (long)argument;
    int me = shmem_my_pe(), n = shmem_n_pes();
    shmem_ctx_t ctx;
    CHECK(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        shmem_long_atomic_inc(&counter, i % n);
        shmem_ctx_long_p(ctx, &own[thread][i], thread * ROUNDS + i, (me + 1) % n);
        if (i % 50 == 0) {
            shmem_ctx_quiet(ctx);
            CHECK(shmem_ctx_long_g(ctx, &own[thread][i], (me + 1) % n) == thread * ROUNDS + i);
        }
    }
    shmem_ctx_quiet(ctx);
    shmem_ctx_destroy(ctx);
    return NULL;
}

int main(void)
{
    int provided;
    pthread_t threads[THREADS];
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    shmem_barrier_all();
    long all = 0;
    for (int pe = 0; pe < shmem_n_pes(); pe++) all += shmem_long_g(&counter, pe);
    CHECK(all == (long)THREADS * ROUNDS * shmem_n_pes());
    for (long thread = 0; thread < THREADS; thread++)
        for (int i = 0; i < ROUNDS; i++) CHECK(own[thread][i] == thread * ROUNDS + i);
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
