/* Teams, contexts, extensions. */
#include <shmem.h>
#include <shmemx.h>
#include <string.h>

#include "check.h"

static int dest[64], source[64];
static float reduced[8], values[8];
static uint16_t halves[4], half_sum[4];

int main(void)
{
    int provided = -1, yes = -1, major, minor;
    char name[SHMEM_MAX_NAME_LEN];
    shmem_query_initialized(&yes);
    if (yes != 0) return 3;
    CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) == 0 && provided == SHMEM_THREAD_MULTIPLE);
    shmem_query_initialized(&yes);
    shmem_query_thread(&provided);
    shmem_info_get_version(&major, &minor);
    shmem_info_get_name(name);
    CHECK(yes == 1 && provided == SHMEM_THREAD_MULTIPLE && major == 1 && minor == 6 && strcmp(name, SHMEM_VENDOR_STRING) == 0);
    int me = shmem_my_pe(), n = shmem_n_pes();
    CHECK(shmem_team_my_pe(SHMEM_TEAM_INVALID) == -1 && shmem_team_n_pes(SHMEM_TEAM_INVALID) == -1);
    CHECK(shmem_team_n_pes(SHMEM_TEAM_SHARED) <= n && shmem_team_my_pe(SHMEM_TEAM_WORLD) == me);

    /* The even PEs, counted down. */
    shmem_team_config_t config = {3}, got = {0};
    int evens = (n + 1) / 2, last = 2 * (evens - 1);
    shmem_team_t team = SHMEM_TEAM_WORLD;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, last, -2, evens, &config, SHMEM_TEAM_NUM_CONTEXTS, &team) == 0);
    if (me % 2 == 0) {
        int mine = shmem_team_my_pe(team);
        CHECK(mine == (last - me) / 2 && shmem_team_n_pes(team) == evens);
        CHECK(shmem_team_get_config(team, SHMEM_TEAM_NUM_CONTEXTS, &got) == 0 && got.num_contexts == 3);
        CHECK(shmem_team_translate_pe(team, 0, SHMEM_TEAM_WORLD) == last && shmem_team_translate_pe(SHMEM_TEAM_WORLD, me, team) == mine);
        CHECK(n < 2 || shmem_team_translate_pe(SHMEM_TEAM_WORLD, 1, team) == -1);
        shmem_ctx_t ctx;
        shmem_team_t of = SHMEM_TEAM_INVALID;
        CHECK(shmem_team_create_ctx(team, SHMEM_CTX_SERIALIZED, &ctx) == 0 && shmem_ctx_get_team(ctx, &of) == 0 && of == team);
        shmem_ctx_session_start(ctx, SHMEM_CTX_SESSION_BATCH, NULL, 0);
        shmem_ctx_int_p(ctx, &dest[0], me + 1, (mine + 1) % evens);
        shmem_ctx_session_stop(ctx);
        shmem_ctx_quiet(ctx);
        CHECK(shmem_team_sync(team) == 0);
        CHECK(dest[0] == (me + 2 > last ? 0 : me + 2) + 1);
        CHECK(shmem_team_ptr(team, &dest[0], mine) == &dest[0]);
        for (int i = 0; i < 4; i++) source[i] = me + i;
        CHECK(shmem_int_sum_reduce(team, dest, source, 4) == 0);
        for (int i = 0; i < 4; i++) CHECK(dest[i] == evens * (evens - 1) + evens * i);
        shmem_ctx_destroy(ctx);
    } else {
        CHECK(team == SHMEM_TEAM_INVALID);
    }
    shmem_barrier_all();
    shmem_team_destroy(team);

    /* What cannot be: on all PEs, and the old team stays. */
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n + 1, NULL, 0, &team) != 0 && team == SHMEM_TEAM_INVALID);
    CHECK(strlen(shmemx_error_text()) > 0);
    shmem_ctx_t none = SHMEM_CTX_DEFAULT;
    CHECK(shmem_team_create_ctx(SHMEM_TEAM_INVALID, 0, &none) != 0 && none == SHMEM_CTX_INVALID);
    shmem_ctx_quiet(SHMEM_CTX_INVALID);
    shmem_ctx_destroy(SHMEM_CTX_INVALID);

    /* Rows and columns of two. */
    shmem_team_t row, column;
    CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, NULL, 0, &row, NULL, 0, &column) == 0);
    CHECK(shmem_team_my_pe(row) == me % 2 && shmem_team_my_pe(column) == me / 2);
    shmem_team_destroy(row);
    shmem_team_destroy(column);

    /* By a list, backwards; and the extensions on it. */
    int list[64];
    for (int i = 0; i < n; i++) list[i] = n - 1 - i;
    CHECK(shmemx_team_split_list(SHMEM_TEAM_WORLD, list, (size_t)n, NULL, 0, &team) == 0 && shmem_team_my_pe(team) == n - 1 - me);
    for (int i = 0; i < 8; i++) values[i] = (float)(me + i);
    CHECK(shmemx_reduce(team, reduced, values, 8, SHMEMX_F32, SHMEMX_AVG) == 0);
    for (int i = 0; i < 8; i++) CHECK(reduced[i] == (n - 1) / 2.0f + i);
    for (int i = 0; i < 4; i++) halves[i] = 0x3c00; /* 1 in f16 */
    CHECK(shmemx_reduce(team, half_sum, halves, 4, SHMEMX_F16, SHMEMX_SUM) == 0);
    const uint16_t sums[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800};
    if (n <= 8) CHECK(half_sum[3] == sums[n]);
    for (int i = 0; i < 64; i++) source[i] = me + i, dest[i] = -1;
    CHECK(n > 32 || shmemx_reduce_scatter(team, dest, source, 2, SHMEMX_I32, SHMEMX_SUM) == 0);
    CHECK(n > 32 || dest[1] == n * (n - 1) / 2 + n * (2 * (n - 1 - me) + 1));

    /* Started, and several at once. */
    shmemx_req_t first = SHMEMX_REQ_NULL, second = SHMEMX_REQ_NULL, third = SHMEMX_REQ_NULL;
    static int gathered[64];
    static long sum, one;
    int done = 0;
    one = me + 1;
    CHECK(shmemx_req_wait(&first) == 0);
    CHECK(shmemx_fcollectmem_nbi(team, gathered, source, sizeof(int), &first) == 0);
    CHECK(shmemx_reduce_nbi(team, &sum, &one, 1, SHMEMX_I64, SHMEMX_SUM, &second) == 0);
    CHECK(shmemx_broadcastmem_nbi(team, dest, source, sizeof(int), 0, &third) == 0);
    while (!done) CHECK(shmemx_req_test(&first, &done) == 0);
    for (int i = 0; i < n; i++) CHECK(gathered[i] == n - 1 - i);
    CHECK(shmem_team_sync(team) == 0);
    CHECK(sum == n * (n + 1) / 2 && dest[0] == n - 1);
    CHECK(shmemx_req_wait(&second) == 0 && shmemx_req_wait(&third) == 0);

    /* Bytes for each PE: i + 1 to PE i. */
    size_t counts[64], displs[64], from[64], from_displs[64];
    static char to_all[64], of_all[64 * 64];
    for (int i = 0; i < n; i++) {
        counts[i] = (size_t)i + 1, displs[i] = 0, from[i] = (size_t)shmem_team_my_pe(team) + 1, from_displs[i] = 64 * (size_t)i;
    }
    memset(to_all, me + 1, sizeof to_all);
    CHECK(shmemx_alltoallvmem(team, of_all, from, from_displs, to_all, counts, displs) == 0);
    for (int i = 0; i < n; i++) CHECK(of_all[64 * i + shmem_team_my_pe(team)] == n - i && of_all[64 * i + shmem_team_my_pe(team) + 1] == 0);

    /* No bytes come or go, wherever they would lie; arrays and requests that are needed and none. */
    shmem_team_t old = team;
    shmemx_return_errors(1);
    /* What is wrong on one PE is told to all, of a call that is started at its end; and the next is good. */
    int here = 0, is_last = me == n - 1, *place = is_last ? &here : dest;
    for (int i = 0; i < 3; i++) {
        shmemx_type_t type = i == 2 && is_last ? (shmemx_type_t)99 : SHMEMX_I32;
        if (i == 0) CHECK(shmem_int_sum_reduce(team, place, source, 1) == -1);
        if (i == 1) CHECK(shmemx_reduce_nbi(team, place, source, 1, type, SHMEMX_SUM, &first) == 0 && shmemx_req_wait(&first) == -1);
        if (i == 2) CHECK(shmemx_reduce(team, dest, source, 1, type, SHMEMX_SUM) == -1);
        CHECK(strstr(shmemx_error_text(), i == 2 ? "99 is no shmemx_type_t" : "are not symmetric") != NULL);
        CHECK(shmem_int_sum_reduce(team, dest, source, 1) == 0 && dest[0] == n * (n - 1) / 2);
    }
    for (int i = 0; i < n; i++) counts[i] = 0, displs[i] = SIZE_MAX - (size_t)i;
    CHECK(shmemx_alltoallvmem(team, of_all, counts, displs, to_all, counts, displs) == 0);
    CHECK(shmemx_alltoallvmem(team, of_all, counts, NULL, to_all, counts, displs) == -1);
    CHECK(strstr(shmemx_error_text(), "dest_displs is NULL") != NULL);
    CHECK(shmemx_team_barrier_nbi(team, NULL) == -1 && shmemx_req_wait(NULL) == -1 && shmemx_req_test(NULL, &done) == -1);
    CHECK(strstr(shmemx_error_text(), "request is NULL") != NULL && shmemx_req_test(&first, NULL) == -1);
    shmem_barrier_all();
    shmem_team_destroy(team);

    /* Lists longer than they can be, or none; and no new team has the handle of an old one. */
    for (int i = 0; i <= n; i++) list[i] = i;
    CHECK(shmemx_team_split_list(SHMEM_TEAM_WORLD, list, SIZE_MAX, NULL, 0, &team) == -1 && team == SHMEM_TEAM_INVALID);
    CHECK(strstr(shmemx_error_text(), "does not exist") != NULL);
    CHECK(shmemx_team_split_list(SHMEM_TEAM_WORLD, NULL, 2, NULL, 0, &team) == -1);
    CHECK(shmemx_team_split_list(SHMEM_TEAM_WORLD, list, (size_t)n, NULL, 0, &team) == 0);
    CHECK(shmem_team_n_pes(team) == n && shmem_team_n_pes(old) == -1 && shmem_team_sync(old) == -1);
    shmem_team_destroy(team);
    shmemx_return_errors(0);

    /* The heap says what it has; what it has not is no address. */
    size_t available = shmemx_heap_available();
    CHECK(available > 0 && available <= shmemx_heap_size());
    CHECK(shmem_malloc(0) == NULL && shmem_malloc(SIZE_MAX / 2) == NULL);
    void *block = shmem_malloc_with_hints(1 << 16, SHMEM_MALLOC_ATOMICS_REMOTE);
    CHECK(block != NULL && shmemx_heap_available() < available);
    shmem_free(block);
    shmem_free(NULL);
    CHECK(shmemx_heap_available() == available);
    shmem_pcontrol(1);
    return 0;
}
