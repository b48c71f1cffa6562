/* How a job ends, by its first argument. */
#include <shmem.h>
#include <shmemx.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static long word, words[2];

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    if (strcmp(how, "too-early") == 0) shmem_barrier_all();
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes();
    if (strcmp(how, "exit-0") == 0) exit(0);
    if (strcmp(how, "exit-3") == 0) {
        if (me == n - 1) exit(3);
        shmem_barrier_all();
    }
    if (strcmp(how, "global-exit-0") == 0) {
        if (me == n - 1) shmem_global_exit(0);
        for (;;) pause();
    }
    if (strcmp(how, "global-exit-9") == 0) {
        if (me == 0) shmem_global_exit(9);
        shmem_long_wait_until(&word, SHMEM_CMP_EQ, 1);
    }
    if (strcmp(how, "bad-pe") == 0) {
        if (me == n - 1) shmem_long_p(&word, 1, -1);
        shmem_barrier_all();
    }
    if (strcmp(how, "not-symmetric") == 0) {
        long local = 0;
        if (me == 0) shmem_long_put(&local, &word, 1, n - 1);
        shmem_barrier_all();
    }
    if (strcmp(how, "freed-twice") == 0) {
        long *block = shmem_malloc(8);
        shmem_free(block);
        shmem_free(block);
    }
    if (strcmp(how, "freed-global") == 0) {
        /* Wherever their pages begin. */
        char *page = (char *)((size_t)&word & ~(size_t)4095);
        while (shmem_addr_accessible(page - 4096, me)) page -= 4096;
        shmem_free(page);
    }
    if (strcmp(how, "destroyed-twice") == 0) {
        shmem_ctx_t ctx;
        CHECK(shmem_ctx_create(0, &ctx) == 0);
        shmem_ctx_destroy(ctx);
        shmem_ctx_destroy(ctx);
    }
    if (strcmp(how, "context-destroyed") == 0) {
        shmem_ctx_t ctx;
        CHECK(shmem_ctx_create(0, &ctx) == 0);
        shmem_ctx_destroy(ctx);
        shmem_ctx_long_p(ctx, &word, 1, 0);
    }
    if (strcmp(how, "context-of-no-team") == 0) {
        /* It ends with its team. */
        shmem_team_t team;
        shmem_ctx_t ctx;
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) == 0);
        CHECK(shmem_team_create_ctx(team, 0, &ctx) == 0);
        shmem_ctx_long_p(ctx, &word, 1, me);
        shmem_team_destroy(team);
        CHECK(word == 1);
        shmem_ctx_long_p(ctx, &word, 1, 0);
    }
    if (strcmp(how, "context-of-another-job") == 0) {
        shmem_ctx_t ctx;
        CHECK(shmem_ctx_create(0, &ctx) == 0);
        shmem_finalize();
        shmem_init();
        shmem_ctx_long_p(ctx, &word, 1, 0);
    }
    if (strcmp(how, "pes-null") == 0) shmem_pe_quiet(NULL, 2);
    if (strcmp(how, "pes-too-many") == 0) shmem_pe_quiet(&me, (size_t)-1);
    if (strcmp(how, "values-null") == 0) shmem_long_wait_until_all_vector(words, 2, NULL, SHMEM_CMP_EQ, NULL);
    if (strcmp(how, "indices-null") == 0) shmem_long_test_some(words, 2, NULL, NULL, SHMEM_CMP_EQ, 0);
    if (strcmp(how, "set-before-first") == 0) shmem_barrier(-1, 0, n, words);
    if (strcmp(how, "exchange-left") == 0 || strcmp(how, "exchange-freed") == 0) {
        shmemx_moe_config_t config = {4, 8, 16, 2, SHMEMX_MOE_F32, SHMEMX_MOE_AUTO, NULL, NULL, 0};
        shmemx_moe_t moe;
        shmem_team_t team;
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) == 0);
        CHECK(shmemx_moe_create(team, &config, &moe, NULL) == 0);
        if (strcmp(how, "exchange-freed") == 0) {
            shmemx_moe_free(moe);
            shmemx_moe_recv(moe);
        }
        if (me == n - 1) shmem_team_destroy(team);
        shmem_barrier_all();
    }
    if (strcmp(how, "bad-stride") == 0) shmem_long_iput(words, words, 0, 1, 2, 0);
    if (strcmp(how, "mismatch") == 0) shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &word, words, me == 0 ? 1 : 0);
    if (strcmp(how, "returned") == 0) {
        shmemx_return_errors(1);
        CHECK(shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &word, words, me == 0 ? 1 : 0) == -1 || n == 1);
        CHECK(n == 1 || strstr(shmemx_error_text(), "disagree") != NULL);
        words[0] = 1;
        CHECK(shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &word, words, 1) == 0 && word == n);
    }
    if (strcmp(how, "timeout") == 0) {
        shmemx_set_timeout(0.3);
        shmem_long_wait_until(&word, SHMEM_CMP_EQ, 1);
    }
    if (strcmp(how, "again") == 0) {
        for (int round = 0; round < 4; round++) {
            long *block = shmem_calloc(2, sizeof *block);
            shmem_long_p(block, me + round, (me + 1) % n);
            shmem_long_p(&word, me + round, (me + 1) % n);
            shmem_barrier_all();
            CHECK(*block == (me + n - 1) % n + round && word == *block);
            shmem_finalize();
            shmem_finalize();
            shmem_init();
        }
    }
    return 0;
}
