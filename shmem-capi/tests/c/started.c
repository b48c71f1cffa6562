/* Started calls of several teams, which PEs wait for in different orders; requests of teams that have been destroyed. */
#include <pthread.h>
#include <shmem.h>
#include <shmemx.h>
#include <string.h>

#include "check.h"

enum { TEAMS = 3, ROUNDS = 20, LEN = 600 };

static long sums[TEAMS][LEN], values[TEAMS][LEN];
static long gathered[TEAMS][8 * LEN];
static shmem_team_t teams[TEAMS];
static int me, n;

static void start(int team, int round, shmemx_req_t requests[2])
{
    for (int i = 0; i < LEN; i++) values[team][i] = me + i + team * round;
    CHECK(shmemx_reduce_nbi(teams[team], sums[team], values[team], LEN, SHMEMX_I64, SHMEMX_SUM, &requests[0]) == 0);
    CHECK(shmemx_fcollectmem_nbi(teams[team], gathered[team], values[team], sizeof values[team], &requests[1]) == 0);
}

static void check(int team, int round)
{
    for (int i = 0; i < LEN; i++) {
        CHECK(sums[team][i] == n * (n - 1) / 2 + n * (i + team * round));
        for (int pe = 0; pe < n; pe++) CHECK(gathered[team][pe * LEN + i] == pe + i + team * round);
    }
}

/* Each thread has a team of its own, and waits while others do. */
static void *work(void *team)
{
    int mine = (int)((shmem_team_t *)team - teams);
    for (int round = 0; round < ROUNDS; round++) {
        shmemx_req_t requests[2];
        start(mine, round, requests);
        CHECK(shmemx_req_wait(&requests[0]) == 0 && shmemx_req_wait(&requests[1]) == 0);
        check(mine, round);
        shmem_team_sync(teams[mine]);
    }
    return NULL;
}

int main(void)
{
    int provided;
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    me = shmem_my_pe(), n = shmem_n_pes();
    for (int i = 0; i < TEAMS; i++) CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &teams[i]) == 0);

    for (int round = 0; round < ROUNDS; round++) {
        shmemx_req_t requests[TEAMS][2];
        for (int i = 0; i < TEAMS; i++) start(i, round, requests[i]);
        for (int i = 0; i < TEAMS; i++) {
            int team = (i + me) % TEAMS, done = 0;
            while (round % 4 == 3 && !done) CHECK(shmemx_req_test(&requests[team][0], &done) == 0);
            /* The second first: both end then. */
            CHECK(shmemx_req_wait(&requests[team][1]) == 0 && shmemx_req_wait(&requests[team][0]) == 0);
            check(team, round);
        }
        shmem_barrier_all();
    }

    pthread_t threads[TEAMS];
    for (int i = 0; i < TEAMS; i++) CHECK(pthread_create(&threads[i], NULL, work, &teams[i]) == 0);
    for (int i = 0; i < TEAMS; i++) CHECK(pthread_join(threads[i], NULL) == 0);

    /* A destroyed team has ended its calls; whatever lies where it lay knows nothing of them. */
    shmemx_return_errors(1);
    shmemx_req_t waited[2], tested[2];
    int done = 9;
    start(0, 1, waited);
    memcpy(tested, waited, sizeof waited);
    shmem_team_destroy(teams[0]);
    check(0, 1);
    CHECK(shmemx_req_wait(&waited[0]) == -1 && strstr(shmemx_error_text(), "has been destroyed, and its calls") != NULL);
    CHECK(shmemx_req_wait(&waited[0]) == 0);
    for (int i = 0; i < 4; i++) {
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &teams[0]) == 0);
        shmemx_req_t stale = tested[0], good[2];
        start(0, i, good);
        CHECK(shmemx_req_test(&stale, &done) == -1 && strstr(shmemx_error_text(), "wait before shmem_team_destroy") != NULL);
        stale = waited[1];
        CHECK(shmemx_req_wait(&stale) == -1 && shmemx_req_wait(&good[0]) == 0 && shmemx_req_wait(&good[1]) == 0);
        check(0, i);
        shmem_team_destroy(teams[0]);
    }
    for (int i = 1; i < TEAMS; i++) shmem_team_destroy(teams[i]);
    shmem_finalize();
    return 0;
}
