/* The exchange between experts, against what a serial program makes: every payload, both modes, wrong calls between good ones. */
#include <shmem.h>
#include <shmemx.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { HIDDEN = 6, TOP_K = 2, MAX_TOKENS = 5 };

static int me, n, experts_in_all;

/* The layout of floats of 16 bits, for numbers that they hold exactly. */
static uint16_t narrow(shmemx_moe_payload_t payload, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (payload != SHMEMX_MOE_F16) return (uint16_t)(bits >> 16);
    if (value == 0) return 0;
    return (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023));
}

static float widen(shmemx_moe_payload_t payload, uint16_t given)
{
    uint32_t bits = (uint32_t)given << 16;
    if (payload == SHMEMX_MOE_F16 && (given & 0x7fff) != 0)
        bits = (uint32_t)(given & 0x8000) << 16 | ((uint32_t)(given >> 10 & 31) + 112) << 23 | (uint32_t)(given & 1023) << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void set(shmemx_moe_payload_t payload, void *array, size_t i, float value)
{
    if (payload == SHMEMX_MOE_F32) ((float *)array)[i] = value;
    else ((uint16_t *)array)[i] = narrow(payload, value);
}

static float get(shmemx_moe_payload_t payload, const void *array, size_t i)
{
    return payload == SHMEMX_MOE_F32 ? ((const float *)array)[i] : widen(payload, ((const uint16_t *)array)[i]);
}

/* What a PE brings in a round: no, two or four tokens, of powers of two, which fp8 holds. */
static int tokens_of(int pe, int seed) { return (pe + seed) % 3 * 2; }

static float value_of(int pe, int token, int i, int seed)
{
    float value = (float)(1 << (pe + 3 * token + i + seed) % 4);
    return (token + i) % 2 ? -value : value;
}

static int expert_of(int pe, int token, int choice, int seed)
{
    int first = (3 * pe + token + seed) % experts_in_all;
    if (choice == 0) return first;
    return token == 3 ? -1 : (first + 1 + token % (experts_in_all - 1)) % experts_in_all;
}

static float weight_of(int pe, int token, int choice) { return choice ? 0.5f : 0.25f * (float)((pe + token) % 4); }

/* What an expert makes of a value. */
static float work(int expert, float value) { return value * (float)(expert % 3 + 1); }

/* The sum of a token's outputs. */
static float sum_of(int pe, int token, int i, int seed, int values)
{
    float sum = 0;
    for (int choice = 0; choice < TOP_K; choice++) {
        int expert = expert_of(pe, token, choice, seed);
        if (expert >= 0) sum += weight_of(pe, token, choice) * work(expert, value_of(pe, token, i, values));
    }
    return sum;
}

typedef struct {
    float values[(MAX_TOKENS + 1) * HIDDEN]; /* of any payload */
    int experts[(MAX_TOKENS + 1) * TOP_K];
    float weights[(MAX_TOKENS + 1) * TOP_K];
    size_t len;
} batch_t;

/* A PE's tokens: who goes where follows from one seed, the values from another. */
static void fill(batch_t *batch, shmemx_moe_payload_t payload, int pe, int seed, int values)
{
    batch->len = (size_t)tokens_of(pe, seed);
    for (int token = 0; token < (int)batch->len; token++) {
        for (int i = 0; i < HIDDEN; i++)
            set(payload, batch->values, (size_t)(token * HIDDEN + i), value_of(pe, token, i, values));
        for (int choice = 0; choice < TOP_K; choice++) {
            batch->experts[token * TOP_K + choice] = expert_of(pe, token, choice, seed);
            batch->weights[token * TOP_K + choice] = weight_of(pe, token, choice);
        }
    }
}

/* Checks what was received, in the team of all PEs, and writes the outputs. */
static void serve(shmemx_moe_t moe, shmemx_moe_payload_t payload, int seed, int values)
{
    const int *own = NULL;
    size_t nexperts = 0;
    CHECK(shmemx_moe_experts(moe, &own, &nexperts) == 0 && (nexperts == 0 || own != NULL));
    for (size_t local = 0; local < nexperts; local++) {
        size_t nrows = 99, row = 0;
        CHECK(shmemx_moe_nrows(moe, local, &nrows) == 0);
        CHECK(nrows <= (size_t)(n * MAX_TOKENS));
        shmemx_moe_row_t *rows = (shmemx_moe_row_t *)calloc(nrows + 1, sizeof *rows);
        float *dense = (float *)calloc(nrows * HIDDEN + 1, sizeof *dense);
        CHECK(shmemx_moe_rows(moe, local, rows, nrows) == 0 && shmemx_moe_gather(moe, local, dense, nrows) == 0);
        for (int pe = 0; pe < n; pe++) {
            for (int token = 0; token < tokens_of(pe, seed); token++) {
                for (int choice = 0; choice < TOP_K; choice++) {
                    if (expert_of(pe, token, choice, seed) != own[local]) continue;
                    CHECK(row < nrows && rows[row].source == pe && rows[row].position == (size_t)token);
                    CHECK(rows[row].weight == weight_of(pe, token, choice));
                    for (size_t i = 0; i < HIDDEN; i++) {
                        float value = get(payload, dense, row * HIDDEN + i);
                        CHECK(value == value_of(pe, token, (int)i, values));
                        set(payload, dense, row * HIDDEN + i, work(own[local], value));
                    }
                    row++;
                }
            }
        }
        CHECK(row == nrows && shmemx_moe_scatter(moe, local, dense, nrows) == 0);
        free(rows);
        free(dense);
    }
}

/* Ends a round and checks the sums. */
static void finish(shmemx_moe_t moe, shmemx_moe_payload_t payload, const batch_t *batch, int seed, int values)
{
    float sums[MAX_TOKENS * HIDDEN];
    size_t missing = 99;
    CHECK(shmemx_moe_combine(moe, sums, batch->len) == 0);
    CHECK(shmemx_moe_missing(moe, &missing) == 0 && missing == 0);
    for (size_t i = 0; i < batch->len * HIDDEN; i++)
        CHECK(get(payload, sums, i) == sum_of(me, (int)i / HIDDEN, (int)i % HIDDEN, seed, values));
}

static void round_of(shmemx_moe_t moe, shmemx_moe_payload_t payload, int seed)
{
    batch_t batch;
    fill(&batch, payload, me, seed, seed);
    if (seed % 2) {
        CHECK(shmemx_moe_send(moe, batch.values, batch.experts, batch.weights, batch.len) == 0);
        memset(batch.values, 255, sizeof batch.values); /* it may be used again */
        CHECK(shmemx_moe_recv(moe) == 0);
    } else {
        CHECK(shmemx_moe_dispatch(moe, batch.values, batch.experts, batch.weights, batch.len) == 0);
    }
    size_t moved = 99;
    CHECK(shmemx_moe_moved(moe, &moved) == 0 && (moved > 0) == (batch.len > 0));
    serve(moe, payload, seed, seed);
    finish(moe, payload, &batch, seed, seed);
}

/* Other tokens the ways of a round that was. */
static void again(shmemx_moe_t moe, shmemx_moe_payload_t payload)
{
    batch_t batch;
    shmemx_moe_layout_t layout;
    fill(&batch, payload, me, 2, 2);
    CHECK(shmemx_moe_dispatch(moe, batch.values, batch.experts, batch.weights, batch.len) == 0);
    CHECK(shmemx_moe_layout(moe, &layout) == 0);
    serve(moe, payload, 2, 2);
    finish(moe, payload, &batch, 2, 2);
    round_of(moe, payload, 0);
    fill(&batch, payload, me, 2, 7);
    CHECK(shmemx_moe_dispatch_again(moe, layout, batch.values, batch.len) == 0);
    serve(moe, payload, 2, 7);
    finish(moe, payload, &batch, 2, 7);
    fill(&batch, payload, me, 2, 8);
    CHECK(shmemx_moe_send_again(moe, layout, batch.values, batch.len) == 0 && shmemx_moe_recv(moe) == 0);
    serve(moe, payload, 2, 8);
    finish(moe, payload, &batch, 2, 8);
    /* Of another length on one PE, then freed on all. */
    CHECK(shmemx_moe_dispatch_again(moe, layout, batch.values, batch.len + (me == n - 1)) == -1);
    CHECK(strstr(shmemx_error_text(), "values of tokens") != NULL);
    CHECK(shmemx_moe_layout_free(moe, layout) == 0 && shmemx_moe_layout_free(moe, layout) == -1);
    CHECK(shmemx_moe_dispatch_again(moe, layout, batch.values, batch.len) == -1);
    CHECK(strstr(shmemx_error_text(), "PE 0 dispatches by a layout") != NULL);
    round_of(moe, payload, 1);
}

/* Tokens may lie anywhere, on one PE, too. */
static void from_anywhere(shmemx_moe_t moe, shmemx_moe_payload_t payload)
{
    batch_t batch;
    char bytes[sizeof batch.values + 1], *tokens = me == n - 1 ? bytes + 1 : bytes;
    fill(&batch, payload, me, 1, 1);
    memcpy(tokens, batch.values, sizeof batch.values);
    CHECK(shmemx_moe_dispatch(moe, tokens, batch.experts, batch.weights, batch.len) == 0);
    serve(moe, payload, 1, 1);
    finish(moe, payload, &batch, 1, 1);
}

static shmemx_moe_config_t config_of(shmemx_moe_payload_t payload, shmemx_moe_mode_t mode)
{
    shmemx_moe_config_t config;
    memset(&config, 0, sizeof config);
    config.experts = (size_t)experts_in_all;
    config.max_tokens = MAX_TOKENS;
    config.hidden = HIDDEN;
    config.top_k = TOP_K;
    config.payload = payload;
    config.mode = mode;
    return config;
}

static int refused(int status, const char *text)
{
    if (status == -1 && strstr(shmemx_error_text(), text) != NULL) return 1;
    fprintf(stderr, "PE %d: status %d, %s\n", me, status, shmemx_error_text());
    return 0;
}

/* A layout is no layout of another exchange, though that has one of its own. */
static void of_another(shmemx_moe_t moe, shmemx_moe_t other, shmemx_moe_payload_t payload)
{
    shmemx_moe_layout_t layouts[2];
    shmemx_moe_t moes[] = {moe, other};
    batch_t batch;
    for (int i = 0; i < 2; i++) {
        fill(&batch, payload, me, 2, 2);
        CHECK(shmemx_moe_dispatch(moes[i], batch.values, batch.experts, batch.weights, batch.len) == 0);
        CHECK(shmemx_moe_layout(moes[i], &layouts[i]) == 0);
        serve(moes[i], payload, 2, 2);
        finish(moes[i], payload, &batch, 2, 2);
    }
    CHECK(refused(shmemx_moe_dispatch_again(other, layouts[0], batch.values, batch.len), "by a layout of another exchange"));
    CHECK(refused(shmemx_moe_layout_free(other, layouts[0]), "there is no such layout of this exchange"));
    CHECK(shmemx_moe_layout_free(moe, layouts[0]) == 0 && shmemx_moe_layout_free(other, layouts[1]) == 0);
}

/* Wrong calls: all PEs are told of those in a round, and the next is good; others are of the PE alone. */
static void wrong(shmemx_moe_t moe)
{
    shmemx_moe_payload_t payload = SHMEMX_MOE_BF16;
    batch_t batch;
    char text[128];
    int last = n - 1, is_last = me == last, culprit = 99;
    fill(&batch, payload, me, 1, 1);
    size_t counts[] = {MAX_TOKENS + 1, (size_t)-1};
    for (size_t i = 0; i < 2; i++) {
        size_t len = is_last ? counts[i] : batch.len;
        snprintf(text, sizeof text, "PE %d dispatches %zu tokens, and the exchange was built for 5", last, counts[i]);
        CHECK(refused(shmemx_moe_dispatch(moe, batch.values, batch.experts, batch.weights, len), text));
        CHECK(shmemx_moe_culprit(moe, &culprit) == 0 && culprit == -1);
        round_of(moe, payload, (int)i);
    }
    batch.len = 2;
    snprintf(text, sizeof text, "PE %d gives 0 values of tokens, 12 are needed", last);
    for (int i = 0; i < TOP_K * 2; i++) batch.experts[i] = i % 2;
    CHECK(refused(shmemx_moe_dispatch(moe, is_last ? NULL : batch.values, batch.experts, batch.weights, 2), text));
    CHECK(refused(shmemx_moe_dispatch(moe, batch.values, is_last ? NULL : batch.experts, batch.weights, 2), "0 numbers of experts"));
    CHECK(refused(shmemx_moe_dispatch(moe, batch.values, batch.experts, is_last ? NULL : batch.weights, 2), "0 weights"));
    batch.experts[0] = is_last ? -2 : 0;
    CHECK(refused(shmemx_moe_dispatch(moe, batch.values, batch.experts, batch.weights, 2), "to expert -2: there are"));
    batch.experts[0] = 0;

    /* Of this PE alone. */
    size_t size = 0;
    const int *own;
    CHECK(refused(shmemx_moe_recv(moe), "calls recv out of turn"));
    CHECK(refused(shmemx_moe_combine(moe, batch.values, 2), "calls combine out of turn"));
    CHECK(refused(shmemx_moe_nrows(moe, 0, &size), "calls nrows out of turn"));
    CHECK(refused(shmemx_moe_nrows(moe, 99, &size), "no expert 99 among the"));
    CHECK(refused(shmemx_moe_experts(moe, &own, NULL), "nexperts is NULL") && shmemx_moe_experts(moe, NULL, &size) == 0);
    CHECK(refused(shmemx_moe_moved(moe, NULL), "bytes is NULL") && refused(shmemx_moe_missing(moe, NULL), "noutputs is NULL"));
    CHECK(refused(shmemx_moe_culprit(moe, NULL), "pe is NULL") && refused(shmemx_moe_layout(moe, NULL), "layout is NULL"));
    CHECK(refused(shmemx_moe_mask(moe, -1), "PE -1 does not exist") && refused(shmemx_moe_mask(moe, n), "does not exist"));
    CHECK(refused(shmemx_moe_mask(moe, me), "cannot leave itself out"));
    CHECK(refused(shmemx_moe_recv(SHMEMX_MOE_INVALID), "the exchange is SHMEMX_MOE_INVALID"));
    CHECK(refused(shmemx_moe_recv((shmemx_moe_t)0x1234567), "there is no such exchange"));
    fill(&batch, payload, me, 1, 1);
    CHECK(shmemx_moe_dispatch(moe, batch.values, batch.experts, batch.weights, batch.len) == 0);
    if (size > 0) {
        CHECK(shmemx_moe_nrows(moe, 0, &size) == 0);
        shmemx_moe_row_t row;
        CHECK(refused(shmemx_moe_rows(moe, 0, &row, size + 1), "room for") && refused(shmemx_moe_nrows(moe, 0, NULL), "is NULL"));
        CHECK(refused(shmemx_moe_gather(moe, 0, batch.values, size + 1), "values of tokens"));
        CHECK(refused(shmemx_moe_scatter(moe, 0, batch.values, (size_t)-1), "values of outputs"));
        CHECK(size == 0 || refused(shmemx_moe_rows(moe, 0, NULL, size), "room for 0 rows"));
        CHECK(size == 0 || refused(shmemx_moe_gather(moe, 0, NULL, size), "0 values of tokens"));
        CHECK(size == 0 || refused(shmemx_moe_scatter(moe, 0, NULL, size), "0 values of outputs"));
    }
    serve(moe, payload, 1, 1);
    CHECK(refused(shmemx_moe_combine(moe, (char *)batch.values + 1, batch.len), "is no multiple of 2"));
    CHECK(refused(shmemx_moe_combine(moe, batch.values, batch.len + 1), "values of outputs"));
    CHECK(refused(shmemx_moe_combine(moe, batch.values, (size_t)-1), "values of outputs"));
    finish(moe, payload, &batch, 1, 1);
    round_of(moe, payload, 0);
}

/* What makes no exchange, on all PEs alike. */
static void no_exchange(void)
{
    shmemx_moe_t moe = (shmemx_moe_t)&moe;
    size_t bytes = 0;
    shmemx_moe_config_t good = config_of(SHMEMX_MOE_F32, SHMEMX_MOE_AUTO), bad = good;
    int negative[64];
    for (int i = 0; i < 64; i++) negative[i] = -1;
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_INVALID, &good, &moe, NULL), "SHMEM_TEAM_INVALID"));
    CHECK(moe == SHMEMX_MOE_INVALID && shmemx_moe_free(moe) == 0);
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, NULL, &moe, NULL), "config is NULL"));
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &good, NULL, NULL), "moe is NULL"));
    CHECK(refused(shmemx_moe_buffer_bytes(SHMEM_TEAM_WORLD, &good, NULL), "bytes is NULL"));
    CHECK(refused(shmemx_moe_buffer_bytes(SHMEM_TEAM_WORLD, NULL, &bytes), "config is NULL"));
    bad.experts = 0;
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &bad, &moe, NULL), "experts"));
    bad.experts = (size_t)-1, bad.placement = negative;
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &bad, &moe, NULL), "give at most 1048576"));
    bad = good, bad.placement = negative;
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &bad, &moe, NULL), "PE -1 does not exist"));
    bad = good, bad.top_k = 17;
    CHECK(refused(shmemx_moe_buffer_bytes(SHMEM_TEAM_WORLD, &bad, &bytes), "top_k"));
    bad = good, bad.hidden = (size_t)-1;
    CHECK(refused(shmemx_moe_buffer_bytes(SHMEM_TEAM_WORLD, &bad, &bytes), ""));
    bad = good, bad.max_tokens = (size_t)-1;
    CHECK(refused(shmemx_moe_buffer_bytes(SHMEM_TEAM_WORLD, &bad, &bytes), ""));
    int number = 9;
    bad = good, memcpy(&bad.payload, &number, sizeof number);
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &bad, &moe, NULL), "9 is no shmemx_moe_payload_t"));
    bad = good, memcpy(&bad.mode, &number, sizeof number);
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &bad, &moe, NULL), "9 is no shmemx_moe_mode_t"));
    bad = good, bad.memory = &bytes;
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &bad, &moe, NULL), "at 0x"));
    bad = good, bad.max_tokens = 1 << 20, bad.hidden = 1 << 16;
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &bad, &moe, NULL), "SHMEM_SYMMETRIC_SIZE"));
    if (n > 1) {
        bad = good, bad.hidden = me == 0 ? 7 : HIDDEN;
        CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &bad, &moe, NULL), "disagree"));
    }
    if (n == 1) return;
    /* On one PE only: the others are told. */
    int is_last = me == n - 1;
    if (bad = good, is_last) memcpy(&bad.payload, &number, sizeof number);
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &bad, &moe, NULL), "9 is no shmemx_moe_payload_t"));
    if (bad = good, is_last) memcpy(&bad.mode, &number, sizeof number);
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &bad, &moe, NULL), "9 is no shmemx_moe_mode_t"));
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, is_last ? NULL : &good, &moe, NULL), "config is NULL"));
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &good, is_last ? NULL : &moe, NULL), "moe is NULL"));
    bad = good, bad.memory = is_last ? &bytes : NULL;
    CHECK(refused(shmemx_moe_create(SHMEM_TEAM_WORLD, &bad, &moe, NULL), "are not symmetric"));
    CHECK(moe == SHMEMX_MOE_INVALID);
}

/* An exchange of the next job has another handle. */
static void in_another_job(void)
{
    shmemx_moe_config_t config = config_of(SHMEMX_MOE_F32, SHMEMX_MOE_AUTO);
    shmemx_moe_t old, moe;
    CHECK(shmemx_moe_create(SHMEM_TEAM_WORLD, &config, &old, NULL) == 0);
    round_of(old, config.payload, 1);
    CHECK(shmemx_moe_free(old) == 0);
    shmem_finalize();
    shmem_init();
    CHECK(shmemx_moe_create(SHMEM_TEAM_WORLD, &config, &moe, NULL) == 0);
    CHECK(refused(shmemx_moe_recv(old), "there is no such exchange, or it has been freed"));
    round_of(moe, config.payload, 1);
    CHECK(shmemx_moe_free(moe) == 0);
}

/* On the team of the last PEs, in memory of the program's own, with all experts on its last PE. */
static void of_a_team(void)
{
    size_t room = 1 << 16, needed = 0, told = 0;
    char *memory = (char *)shmem_align(128, room);
    shmem_team_t team;
    int first = n / 2, size = n - first, all_on[64];
    CHECK(memory != NULL && shmem_team_split_strided(SHMEM_TEAM_WORLD, first, 1, size, NULL, 0, &team) == 0);
    if (team != SHMEM_TEAM_INVALID) {
        shmemx_moe_config_t config = config_of(SHMEMX_MOE_F32, SHMEMX_MOE_AUTO);
        for (int i = 0; i < experts_in_all; i++) all_on[i] = size - 1;
        config.placement = all_on, config.leave_out_lost = 1;
        CHECK(shmemx_moe_buffer_bytes(team, &config, &needed) == 0 && needed > 0 && needed <= room);
        shmemx_moe_t moe;
        config.memory = memory + 64;
        CHECK(refused(shmemx_moe_create(team, &config, &moe, NULL), "128"));
        config.memory = memory;
        CHECK(shmemx_moe_create(team, &config, &moe, &told) == 0 && told == needed);
        float token[HIDDEN] = {1, 2, 4, 8, 16, 32}, sum[HIDDEN], weights[TOP_K] = {0.5f, 2};
        int mine = shmem_team_my_pe(team), chosen[TOP_K] = {1, experts_in_all - 1};
        const int *own;
        size_t nexperts, nrows;
        CHECK(shmemx_moe_dispatch(moe, token, chosen, weights, 1) == 0);
        CHECK(shmemx_moe_experts(moe, &own, &nexperts) == 0);
        CHECK(nexperts == (mine == size - 1 ? (size_t)experts_in_all : 0));
        for (size_t local = 0; local < nexperts; local++) {
            float dense[64 * HIDDEN];
            CHECK(own[local] == (int)local && shmemx_moe_nrows(moe, local, &nrows) == 0);
            CHECK(nrows == (own[local] == chosen[0] || own[local] == chosen[1] ? (size_t)size : 0));
            CHECK(shmemx_moe_gather(moe, local, dense, nrows) == 0 && shmemx_moe_scatter(moe, local, dense, nrows) == 0);
        }
        CHECK(shmemx_moe_combine(moe, sum, 1) == 0);
        for (int i = 0; i < HIDDEN; i++) CHECK(sum[i] == 2.5f * token[i]);
        CHECK(shmemx_moe_free(moe) == 0 && refused(shmemx_moe_free(moe), "freed"));
        shmem_team_sync(team);
    }
    shmem_team_destroy(team);
    shmem_barrier_all();
    shmem_free(memory);
}

/* The last PE is left out by the others, who say what is missing. */
static void left_out(void)
{
    shmemx_moe_config_t config = config_of(SHMEMX_MOE_F32, SHMEMX_MOE_AUTO);
    shmemx_moe_t moe;
    CHECK(shmemx_moe_create(SHMEM_TEAM_WORLD, &config, &moe, NULL) == 0);
    round_of(moe, SHMEMX_MOE_F32, 0);
    batch_t batch;
    fill(&batch, SHMEMX_MOE_F32, me, 1, 1);
    shmem_barrier_all();
    int last = n - 1, culprit = 99;
    if (n > 1 && me == last) {
        CHECK(refused(shmemx_moe_dispatch(moe, batch.values, batch.experts, batch.weights, batch.len), "was left out by PE"));
        CHECK(shmemx_moe_culprit(moe, &culprit) == 0 && culprit == me);
    } else if (n > 1) {
        CHECK(shmemx_moe_mask(moe, last) == 0 && shmemx_moe_mask(moe, last) == 0);
        CHECK(shmemx_moe_dispatch(moe, batch.values, batch.experts, batch.weights, batch.len) == 0);
        CHECK(shmemx_moe_combine(moe, batch.values, batch.len) == 0);
        /* Experts of the last PE: as many as fit evenly, the first PEs having one more. */
        size_t missing = 99, wanted = 0;
        int of_last = experts_in_all - experts_in_all / n;
        for (size_t i = 0; i < batch.len * TOP_K; i++) wanted += batch.experts[i] >= of_last;
        CHECK(shmemx_moe_missing(moe, &missing) == 0 && missing == wanted);
    }
    shmem_barrier_all();
    CHECK(shmemx_moe_free(moe) == 0);
}

int main(void)
{
    shmem_init();
    me = shmem_my_pe(), n = shmem_n_pes(), experts_in_all = 2 * n + 1;
    shmemx_return_errors(1);
    size_t available = shmemx_heap_available();
    for (int payload = SHMEMX_MOE_BF16; payload <= SHMEMX_MOE_FP8_E4M3; payload++) {
        for (int mode = SHMEMX_MOE_AUTO; mode <= SHMEMX_MOE_THROUGHPUT; mode++) {
            shmemx_moe_config_t config = config_of((shmemx_moe_payload_t)payload, (shmemx_moe_mode_t)mode);
            size_t needed = 0, told = 0;
            shmemx_moe_t moe = SHMEMX_MOE_INVALID, other = SHMEMX_MOE_INVALID;
            CHECK(shmemx_moe_buffer_bytes(SHMEM_TEAM_WORLD, &config, &needed) == 0 && needed > 0);
            CHECK(shmemx_moe_create(SHMEM_TEAM_WORLD, &config, &moe, &told) == 0 && told == needed);
            CHECK(shmemx_moe_create(SHMEM_TEAM_WORLD, &config, &other, NULL) == 0 && other != moe);
            for (int seed = 0; seed < 4; seed++) {
                round_of(moe, config.payload, seed);
                round_of(other, config.payload, seed + 1);
            }
            again(moe, config.payload);
            from_anywhere(moe, config.payload);
            of_another(moe, other, config.payload);
            if (payload == SHMEMX_MOE_BF16) wrong(moe);
            CHECK(shmemx_moe_free(other) == 0 && shmemx_moe_free(moe) == 0);
            CHECK(refused(shmemx_moe_free(moe), "there is no such exchange, or it has been freed"));
            CHECK(refused(shmemx_moe_recv(moe), "there is no such exchange, or it has been freed"));
        }
    }
    no_exchange();
    of_a_team();
    left_out();
    CHECK(shmemx_heap_available() == available);
    in_another_job();
    shmem_finalize();
    return 0;
}
