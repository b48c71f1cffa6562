/* Every function of every type, by its own name, by its twin's (-DTWIN) and by the name without a type (-DGENERIC); in C99, C11
 * and C++17. The tables of types are this file's own: X(A, name, type), those that differ apart from other names of some. */
#include <shmem.h>
#include <string.h>

#include "check.h"

#if defined(GENERIC)
#define CALL(N, FUNCTION) shmem_##FUNCTION
#define CALL_CTX(N, FUNCTION) shmem_##FUNCTION
#define ALL_NAMES(TYPES, NAMES, X, A) TYPES(X, A)
#elif defined(TWIN)
#define CALL(N, FUNCTION) pshmem_##N##_##FUNCTION
#define CALL_CTX(N, FUNCTION) pshmem_ctx_##N##_##FUNCTION
#define ALL_NAMES(TYPES, NAMES, X, A) TYPES(X, A) NAMES(X, A)
#else
#define CALL(N, FUNCTION) shmem_##N##_##FUNCTION
#define CALL_CTX(N, FUNCTION) shmem_ctx_##N##_##FUNCTION
#define ALL_NAMES(TYPES, NAMES, X, A) TYPES(X, A) NAMES(X, A)
#endif

#define INTEGERS(X, A)                                                                                                         \
    X(A, char, char) X(A, schar, signed char) X(A, short, short) X(A, int, int) X(A, long, long) X(A, longlong, long long)     \
    X(A, uchar, unsigned char) X(A, ushort, unsigned short) X(A, uint, unsigned int) X(A, ulong, unsigned long)                \
    X(A, ulonglong, unsigned long long)
#define RMA_TYPES(X, A) X(A, float, float) X(A, double, double) X(A, longdouble, long double) INTEGERS(X, A)
#define RMA_NAMES(X, A)                                                                                                        \
    X(A, int8, int8_t) X(A, int16, int16_t) X(A, int32, int32_t) X(A, int64, int64_t) X(A, uint8, uint8_t)                     \
    X(A, uint16, uint16_t) X(A, uint32, uint32_t) X(A, uint64, uint64_t) X(A, size, size_t) X(A, ptrdiff, ptrdiff_t)
#ifdef __cplusplus
#define COMPLEX(T) std::complex<T>
#else
#define COMPLEX(T) T _Complex
#endif
#define SUM_TYPES(X, A) RMA_TYPES(X, A) X(A, complexd, COMPLEX(double)) X(A, complexf, COMPLEX(float))
#define AMO_TYPES(X, A)                                                                                                        \
    X(A, int, int) X(A, long, long) X(A, longlong, long long) X(A, uint, unsigned int) X(A, ulong, unsigned long)              \
    X(A, ulonglong, unsigned long long)
#define AMO_NAMES(X, A)                                                                                                        \
    X(A, int32, int32_t) X(A, int64, int64_t) X(A, uint32, uint32_t) X(A, uint64, uint64_t) X(A, size, size_t)                 \
    X(A, ptrdiff, ptrdiff_t)
#define EXTENDED_AMO_TYPES(X, A) X(A, float, float) X(A, double, double) AMO_TYPES(X, A)
#define BITWISE_AMO_TYPES(X, A)                                                                                                \
    X(A, uint, unsigned int) X(A, ulong, unsigned long) X(A, ulonglong, unsigned long long) X(A, int32, int32_t)               \
    X(A, int64, int64_t)
#define BITWISE_AMO_NAMES(X, A) X(A, uint32, uint32_t) X(A, uint64, uint64_t)
#define BITWISE_TYPES(X, A)                                                                                                    \
    X(A, uchar, unsigned char) X(A, ushort, unsigned short) X(A, uint, unsigned int) X(A, ulong, unsigned long)                \
    X(A, ulonglong, unsigned long long) X(A, int8, int8_t) X(A, int16, int16_t) X(A, int32, int32_t) X(A, int64, int64_t)
#define BITWISE_NAMES(X, A)                                                                                                    \
    X(A, uint8, uint8_t) X(A, uint16, uint16_t) X(A, uint32, uint32_t) X(A, uint64, uint64_t) X(A, size, size_t)

#define LEN 16
#define MOST 16

static int me, n, right, left;
static shmem_ctx_t ctx;
static shmem_team_t team;
static void *heap, *source_heap;
static uint64_t bell;
static uint64_t rung;

/* Not zero, and different on each PE, in a range that every type holds. */
#define V(T, PE, I) ((T)(1 + ((PE) * 7 + (I)) % 90))

#define SAME(T, ARRAY, STEP, COUNT, PE)                                                                                        \
    for (int i = 0; i < (COUNT); i++) CHECK((ARRAY)[i * (STEP)] == V(T, PE, i))

/* Put and get of one type, into a global variable and into the heap. */
#define TEST_RMA(A, N, T)                                                                                                      \
    static T N##_global[LEN];                                                                                                  \
    static void rma_##N(void)                                                                                                  \
    {                                                                                                                          \
        T mine[LEN], got[LEN], *there = (T *)heap;                                                                             \
        for (int i = 0; i < LEN; i++) mine[i] = V(T, me, i);                                                                   \
        for (int with = 0; with < 2; with++) {                                                                                 \
            memset(N##_global, 0, sizeof N##_global);                                                                          \
            memset(heap, 0, LEN * sizeof(T));                                                                                  \
            memset(got, 0, sizeof got);                                                                                        \
            shmem_barrier_all();                                                                                               \
            if (with)                                                                                                          \
                CALL_CTX(N, put)(ctx, N##_global, mine, LEN, right);                                                           \
            else                                                                                                               \
                CALL(N, put)(N##_global, mine, LEN, right);                                                                    \
            shmem_barrier_all();                                                                                               \
            SAME(T, N##_global, 1, LEN, left);                                                                                 \
            if (with)                                                                                                          \
                CALL_CTX(N, get)(ctx, got, N##_global, LEN, right);                                                            \
            else                                                                                                               \
                CALL(N, get)(got, N##_global, LEN, right);                                                                     \
            SAME(T, got, 1, LEN, me);                                                                                          \
            memset(got, 0, sizeof got);                                                                                        \
            if (with) {                                                                                                        \
                CALL_CTX(N, put_nbi)(ctx, there, mine, LEN, right);                                                            \
                shmem_ctx_quiet(ctx);                                                                                          \
                CALL_CTX(N, get_nbi)(ctx, got, there, LEN, right);                                                             \
                shmem_ctx_quiet(ctx);                                                                                          \
            } else {                                                                                                           \
                CALL(N, put_nbi)(there, mine, LEN, right);                                                                     \
                shmem_quiet();                                                                                                 \
                CALL(N, get_nbi)(got, there, LEN, right);                                                                      \
                shmem_quiet();                                                                                                 \
            }                                                                                                                  \
            SAME(T, got, 1, LEN, me);                                                                                          \
            shmem_barrier_all();                                                                                               \
            if (with) {                                                                                                        \
                CALL_CTX(N, p)(ctx, &there[3], V(T, me, 50), right);                                                           \
                shmem_ctx_quiet(ctx);                                                                                          \
                CHECK(CALL_CTX(N, g)(ctx, &there[3], right) == V(T, me, 50));                                                  \
            } else {                                                                                                           \
                CALL(N, p)(&there[3], V(T, me, 50), right);                                                                    \
                shmem_quiet();                                                                                                 \
                CHECK(CALL(N, g)(&there[3], right) == V(T, me, 50));                                                           \
            }                                                                                                                  \
            shmem_barrier_all();                                                                                               \
            if (with)                                                                                                          \
                CALL_CTX(N, iput)(ctx, there, mine, 3, 2, 5, right);                                                           \
            else                                                                                                               \
                CALL(N, iput)(there, mine, 3, 2, 5, right);                                                                    \
            shmem_barrier_all();                                                                                               \
            for (int i = 0; i < 5; i++) CHECK(there[3 * i] == V(T, left, 2 * i));                                              \
            if (with)                                                                                                          \
                CALL_CTX(N, iget)(ctx, got, there, 2, 3, 5, right);                                                            \
            else                                                                                                               \
                CALL(N, iget)(got, there, 2, 3, 5, right);                                                                     \
            for (int i = 0; i < 5; i++) CHECK(got[2 * i] == V(T, me, 2 * i));                                                  \
            shmem_barrier_all();                                                                                               \
            if (with)                                                                                                          \
                CALL_CTX(N, ibput)(ctx, there, mine, 5, 3, 2, 3, right);                                                       \
            else                                                                                                               \
                CALL(N, ibput)(there, mine, 5, 3, 2, 3, right);                                                                \
            shmem_barrier_all();                                                                                               \
            for (int i = 0; i < 6; i++) CHECK(there[i / 2 * 5 + i % 2] == V(T, left, i / 2 * 3 + i % 2));                      \
            if (with)                                                                                                          \
                CALL_CTX(N, ibget)(ctx, got, there, 2, 5, 2, 3, right);                                                        \
            else                                                                                                               \
                CALL(N, ibget)(got, there, 2, 5, 2, 3, right);                                                                 \
            for (int i = 0; i < 6; i++) CHECK(got[i] == V(T, me, i / 2 * 3 + i % 2));                                          \
            shmem_barrier_all();                                                                                               \
            if (with)                                                                                                          \
                CALL_CTX(N, put_signal)(ctx, there, mine, LEN, &bell, 1, SHMEM_SIGNAL_ADD, right);                             \
            else                                                                                                               \
                CALL(N, put_signal)(there, mine, LEN, &bell, 1, SHMEM_SIGNAL_ADD, right);                                      \
            rung++;                                                                                                            \
            CHECK(shmem_signal_wait_until(&bell, SHMEM_CMP_GE, rung) == rung);                                               \
            SAME(T, there, 1, LEN, left);                                                                                      \
            shmem_barrier_all();                                                                                               \
            if (with)                                                                                                          \
                CALL_CTX(N, put_signal_nbi)(ctx, N##_global, mine, 2, &bell, ++rung, SHMEM_SIGNAL_SET, right);                 \
            else                                                                                                               \
                CALL(N, put_signal_nbi)(N##_global, mine, 2, &bell, ++rung, SHMEM_SIGNAL_SET, right);                          \
            shmem_signal_wait_until(&bell, SHMEM_CMP_EQ, rung);                                                                \
            SAME(T, N##_global, 1, 2, left);                                                                                   \
            shmem_barrier_all();                                                                                               \
            /* Nothing is nothing, from and to nowhere. */                                                                     \
            CALL(N, put)((T *)NULL, (const T *)NULL, 0, right);                                                                \
            CALL(N, get)((T *)NULL, (const T *)NULL, 0, right);                                                                \
            CALL(N, iput)((T *)NULL, (const T *)NULL, 1, 1, 0, right);                                                         \
        }                                                                                                                      \
    }
ALL_NAMES(RMA_TYPES, RMA_NAMES, TEST_RMA, )

/* One word, and what all PEs do to that of PE 0. */
#define TEST_EXTENDED_AMO(A, N, T)                                                                                             \
    static T N##_word;                                                                                                         \
    static void extended_amo_##N(void)                                                                                         \
    {                                                                                                                          \
        T old = 0;                                                                                                             \
        for (int with = 0; with < 2; with++) {                                                                                 \
            shmem_barrier_all();                                                                                               \
            if (with)                                                                                                          \
                CALL_CTX(N, atomic_set)(ctx, &N##_word, V(T, me, 0), right);                                                   \
            else                                                                                                               \
                CALL(N, atomic_set)(&N##_word, V(T, me, 0), right);                                                            \
            shmem_barrier_all();                                                                                               \
            CHECK(N##_word == V(T, left, 0));                                                                                  \
            shmem_barrier_all();                                                                                               \
            CHECK((with ? CALL_CTX(N, atomic_fetch)(ctx, &N##_word, right) : CALL(N, atomic_fetch)(&N##_word, right)) ==       \
                  V(T, me, 0));                                                                                                \
            CHECK((with ? CALL_CTX(N, atomic_swap)(ctx, &N##_word, V(T, me, 1), right)                                         \
                        : CALL(N, atomic_swap)(&N##_word, V(T, me, 1), right)) == V(T, me, 0));                                \
            if (with) {                                                                                                        \
                CALL_CTX(N, atomic_swap_nbi)(ctx, &old, &N##_word, V(T, me, 2), right);                                        \
                shmem_ctx_quiet(ctx);                                                                                          \
                CHECK(old == V(T, me, 1));                                                                                     \
                CALL_CTX(N, atomic_fetch_nbi)(ctx, &old, &N##_word, right);                                                    \
                shmem_ctx_quiet(ctx);                                                                                          \
            } else {                                                                                                           \
                CALL(N, atomic_swap_nbi)(&old, &N##_word, V(T, me, 2), right);                                                 \
                shmem_quiet();                                                                                                 \
                CHECK(old == V(T, me, 1));                                                                                     \
                CALL(N, atomic_fetch_nbi)(&old, &N##_word, right);                                                             \
                shmem_quiet();                                                                                                 \
            }                                                                                                                  \
            CHECK(old == V(T, me, 2));                                                                                         \
        }                                                                                                                      \
        shmem_barrier_all();                                                                                                   \
    }
ALL_NAMES(EXTENDED_AMO_TYPES, AMO_NAMES, TEST_EXTENDED_AMO, )

#define TEST_AMO(A, N, T)                                                                                                      \
    static void amo_##N(void)                                                                                                  \
    {                                                                                                                          \
        T *word = (T *)heap, old = 0;                                                                                          \
        for (int with = 0; with < 2; with++) {                                                                                 \
            word[0] = word[1] = word[2] = word[3] = 0;                                                                         \
            shmem_barrier_all();                                                                                               \
            if (with) {                                                                                                        \
                CALL_CTX(N, atomic_add)(ctx, &word[0], (T)(me + 1), 0);                                                        \
                CHECK(CALL_CTX(N, atomic_fetch_add)(ctx, &word[0], (T)1, 0) >= (T)(me + 1));                                   \
                CALL_CTX(N, atomic_fetch_add_nbi)(ctx, &old, &word[0], (T)1, 0);                                               \
                CALL_CTX(N, atomic_inc)(ctx, &word[1], 0);                                                                     \
                CHECK(CALL_CTX(N, atomic_fetch_inc)(ctx, &word[1], 0) >= (T)1);                                                \
                CALL_CTX(N, atomic_fetch_inc_nbi)(ctx, &old, &word[1], 0);                                                     \
                while (CALL_CTX(N, atomic_compare_swap)(ctx, &word[2], (T)me, (T)(me + 1), 0) != (T)me) {                      \
                }                                                                                                              \
                CALL_CTX(N, atomic_compare_swap_nbi)(ctx, &old, &word[3], (T)5, (T)6, right);                                  \
            } else {                                                                                                           \
                CALL(N, atomic_add)(&word[0], (T)(me + 1), 0);                                                                 \
                CHECK(CALL(N, atomic_fetch_add)(&word[0], (T)1, 0) >= (T)(me + 1));                                            \
                CALL(N, atomic_fetch_add_nbi)(&old, &word[0], (T)1, 0);                                                        \
                CALL(N, atomic_inc)(&word[1], 0);                                                                              \
                CHECK(CALL(N, atomic_fetch_inc)(&word[1], 0) >= (T)1);                                                         \
                CALL(N, atomic_fetch_inc_nbi)(&old, &word[1], 0);                                                              \
                while (CALL(N, atomic_compare_swap)(&word[2], (T)me, (T)(me + 1), 0) != (T)me) {                               \
                }                                                                                                              \
                CALL(N, atomic_compare_swap_nbi)(&old, &word[3], (T)5, (T)6, right);                                           \
            }                                                                                                                  \
            shmem_barrier_all();                                                                                               \
            CHECK(old == 0 && word[3] == 0);                                                                                   \
            if (me == 0) CHECK(word[0] == (T)(n * (n + 1) / 2 + 2 * n) && word[1] == (T)(3 * n) && word[2] == (T)n);           \
            shmem_barrier_all();                                                                                               \
        }                                                                                                                      \
    }
ALL_NAMES(AMO_TYPES, AMO_NAMES, TEST_AMO, )

#define TEST_BITWISE_AMO(A, N, T)                                                                                              \
    static void bitwise_amo_##N(void)                                                                                          \
    {                                                                                                                          \
        T *word = (T *)heap, old = 0, bit = (T)((T)1 << me);                                                                   \
        for (int with = 0; with < 2; with++) {                                                                                 \
            for (int i = 0; i < 6; i++) word[i] = i < 2 ? (T)0xffff : (T)0;                                                    \
            shmem_barrier_all();                                                                                               \
            if (with) {                                                                                                        \
                CALL_CTX(N, atomic_and)(ctx, &word[0], (T)~bit, 0);                                                            \
                CHECK((CALL_CTX(N, atomic_fetch_and)(ctx, &word[1], (T)~bit, 0) & bit) == bit);                                \
                CALL_CTX(N, atomic_or)(ctx, &word[2], bit, 0);                                                                 \
                CHECK((CALL_CTX(N, atomic_fetch_or)(ctx, &word[3], bit, 0) & bit) == 0);                                       \
                CALL_CTX(N, atomic_xor)(ctx, &word[4], bit, 0);                                                                \
                CHECK((CALL_CTX(N, atomic_fetch_xor)(ctx, &word[5], bit, 0) & bit) == 0);                                      \
                CALL_CTX(N, atomic_fetch_xor_nbi)(ctx, &old, &word[5], bit, 0);                                                \
                shmem_ctx_quiet(ctx);                                                                                          \
                CHECK((old & bit) == bit);                                                                                     \
                CALL_CTX(N, atomic_fetch_or_nbi)(ctx, &old, &word[3], bit, 0);                                                 \
                CALL_CTX(N, atomic_fetch_and_nbi)(ctx, &old, &word[1], (T)~bit, 0);                                            \
            } else {                                                                                                           \
                CALL(N, atomic_and)(&word[0], (T)~bit, 0);                                                                     \
                CHECK((CALL(N, atomic_fetch_and)(&word[1], (T)~bit, 0) & bit) == bit);                                         \
                CALL(N, atomic_or)(&word[2], bit, 0);                                                                          \
                CHECK((CALL(N, atomic_fetch_or)(&word[3], bit, 0) & bit) == 0);                                                \
                CALL(N, atomic_xor)(&word[4], bit, 0);                                                                         \
                CHECK((CALL(N, atomic_fetch_xor)(&word[5], bit, 0) & bit) == 0);                                               \
                CALL(N, atomic_fetch_xor_nbi)(&old, &word[5], bit, 0);                                                         \
                shmem_quiet();                                                                                                 \
                CHECK((old & bit) == bit);                                                                                     \
                CALL(N, atomic_fetch_or_nbi)(&old, &word[3], bit, 0);                                                          \
                CALL(N, atomic_fetch_and_nbi)(&old, &word[1], (T)~bit, 0);                                                     \
            }                                                                                                                  \
            shmem_barrier_all();                                                                                               \
            if (me == 0) {                                                                                                     \
                T all = (T)(((T)1 << n) - 1);                                                                                  \
                CHECK(word[0] == (T)(0xffff & ~all) && word[1] == word[0]);                                                    \
                CHECK(word[2] == all && word[3] == all && word[4] == all && word[5] == 0);                                     \
            }                                                                                                                  \
            shmem_barrier_all();                                                                                               \
        }                                                                                                                      \
    }
ALL_NAMES(BITWISE_AMO_TYPES, BITWISE_AMO_NAMES, TEST_BITWISE_AMO, )

/* A variable that the left neighbour writes. */
#define TEST_WAIT(A, N, T)                                                                                                     \
    static void wait_##N(void)                                                                                                 \
    {                                                                                                                          \
        static T variable;                                                                                                     \
        variable = 0;                                                                                                          \
        shmem_barrier_all();                                                                                                   \
        CHECK(CALL(N, test)(&variable, SHMEM_CMP_EQ, (T)7) == 0 || variable == 7);                                             \
        shmem_##N##_p(&variable, (T)7, right);                                                                                 \
        CALL(N, wait_until)(&variable, SHMEM_CMP_EQ, (T)7);                                                                    \
        CHECK(variable == 7);                                                                                                  \
        CHECK(CALL(N, test)(&variable, SHMEM_CMP_NE, (T)6) == 1 && CALL(N, test)(&variable, SHMEM_CMP_GT, (T)7) == 0);         \
        CHECK(CALL(N, test)(&variable, SHMEM_CMP_GE, (T)7) == 1 && CALL(N, test)(&variable, SHMEM_CMP_LT, (T)8) == 1);         \
        CHECK(CALL(N, test)(&variable, SHMEM_CMP_LE, (T)6) == 0);                                                              \
        shmem_barrier_all();                                                                                                   \
    }
ALL_NAMES(AMO_TYPES, AMO_NAMES, TEST_WAIT, )
TEST_WAIT(, short, short)
TEST_WAIT(, ushort, unsigned short)

/* Four variables that the left neighbour writes, of which the second is left out. */
#define TEST_SETS(A, N, T)                                                                                                     \
    static void sets_##N(void)                                                                                                 \
    {                                                                                                                          \
        T *set = (T *)heap;                                                                                                    \
        T each[4] = {3, 9, 5, 6};                                                                                              \
        int out[4] = {0, 1, 0, 0}, none[4] = {1, 1, 1, 1};                                                                     \
        size_t which[4];                                                                                                       \
        for (int i = 0; i < 4; i++) set[i] = 0;                                                                                \
        shmem_barrier_all();                                                                                                   \
        CHECK(CALL(N, test_any)(set, 4, out, SHMEM_CMP_LT, (T)0) == SIZE_MAX);                                                 \
        for (int i = 0; i < 4; i++)                                                                                            \
            if (i != 1) shmem_##N##_p(&set[i], (T)(3 + i), right);                                                             \
        CALL(N, wait_until_all)(set, 4, out, SHMEM_CMP_GE, (T)3);                                                              \
        CHECK(set[0] == 3 && set[1] == 0 && set[2] == 5 && set[3] == 6);                                                       \
        CHECK(CALL(N, test_all)(set, 4, out, SHMEM_CMP_GE, (T)3) == 1 && CALL(N, test_all)(set, 4, NULL, SHMEM_CMP_GE, (T)3) == 0); \
        CHECK(CALL(N, wait_until_any)(set, 4, out, SHMEM_CMP_EQ, (T)5) == 2);                                                  \
        CHECK(CALL(N, test_any)(set, 4, out, SHMEM_CMP_EQ, (T)6) == 3);                                                        \
        CHECK(CALL(N, wait_until_some)(set, 4, which, out, SHMEM_CMP_GT, (T)4) == 2 && which[0] == 2 && which[1] == 3);        \
        CHECK(CALL(N, test_some)(set, 4, which, NULL, SHMEM_CMP_LT, (T)4) == 2 && which[0] == 0 && which[1] == 1);             \
        CALL(N, wait_until_all_vector)(set, 4, out, SHMEM_CMP_EQ, each);                                                       \
        CHECK(CALL(N, test_all_vector)(set, 4, out, SHMEM_CMP_EQ, each) == 1);                                                 \
        CHECK(CALL(N, test_all_vector)(set, 4, NULL, SHMEM_CMP_EQ, each) == 0);                                                \
        CHECK(each[CALL(N, wait_until_any_vector)(set, 4, out, SHMEM_CMP_EQ, each)] != 9);                                           \
        CHECK(CALL(N, test_any_vector)(set, 4, NULL, SHMEM_CMP_NE, each) == 1);                                                \
        CHECK(CALL(N, wait_until_some_vector)(set, 4, which, out, SHMEM_CMP_EQ, each) == 3 && which[1] == 2);                  \
        CHECK(CALL(N, test_some_vector)(set, 4, which, NULL, SHMEM_CMP_NE, each) == 1 && which[0] == 1);                       \
        /* Of nothing, and of what is left out altogether. */                                                                  \
        CALL(N, wait_until_all)(set, 4, none, SHMEM_CMP_LT, (T)0);                                                             \
        CHECK(CALL(N, wait_until_any)(set, 0, NULL, SHMEM_CMP_LT, (T)0) == SIZE_MAX);                                          \
        CHECK(CALL(N, wait_until_any)(set, 4, none, SHMEM_CMP_LT, (T)0) == SIZE_MAX);                                          \
        CHECK(CALL(N, wait_until_some)(set, 4, which, none, SHMEM_CMP_LT, (T)0) == 0);                                         \
        CHECK(CALL(N, test_all)(set, 0, NULL, SHMEM_CMP_LT, (T)0) == 1);                                                       \
        shmem_barrier_all();                                                                                                   \
    }
ALL_NAMES(AMO_TYPES, AMO_NAMES, TEST_SETS, )
#ifdef GENERIC
TEST_SETS(, short, short)
TEST_SETS(, ushort, unsigned short)
#endif

/* The collectives that move. */
#define TEST_COLLECTIVES(A, N, T)                                                                                              \
    static void collectives_##N(void)                                                                                          \
    {                                                                                                                          \
        T *dest = (T *)heap, *source = (T *)source_heap;                                                                       \
        int root = n - 1, at = 0;                                                                                              \
        for (int i = 0; i < LEN * MOST; i++) dest[i] = 0, source[i] = V(T, me, i);                                             \
        CHECK(CALL(N, alltoall)(team, dest, source, 3) == 0);                                                                  \
        for (int pe = 0; pe < n; pe++)                                                                                         \
            for (int i = 0; i < 3; i++) CHECK(dest[3 * pe + i] == V(T, pe, 3 * me + i));                                       \
        shmem_barrier_all();                                                                                                   \
        CHECK(CALL(N, alltoalls)(team, dest, source, 2, 3, 2) == 0);                                                           \
        for (int pe = 0; pe < n; pe++)                                                                                         \
            for (int i = 0; i < 2; i++) CHECK(dest[2 * (2 * pe + i)] == V(T, pe, 3 * (2 * me + i)));                           \
        shmem_barrier_all();                                                                                                   \
        CHECK(CALL(N, broadcast)(team, dest, source, LEN, root) == 0);                                                         \
        SAME(T, dest, 1, LEN, root);                                                                                           \
        shmem_barrier_all();                                                                                                   \
        CHECK(CALL(N, fcollect)(team, dest, source, 5) == 0);                                                                  \
        for (int pe = 0; pe < n; pe++)                                                                                         \
            for (int i = 0; i < 5; i++) CHECK(dest[5 * pe + i] == V(T, pe, i));                                                \
        shmem_barrier_all();                                                                                                   \
        CHECK(CALL(N, collect)(team, dest, source, (size_t)(me % 4)) == 0);                                                    \
        for (int pe = 0; pe < n; pe++)                                                                                         \
            for (int i = 0; i < pe % 4; i++) CHECK(dest[at++] == V(T, pe, i));                                                 \
        shmem_barrier_all();                                                                                                   \
        CHECK(CALL(N, fcollect)(team, (T *)NULL, (const T *)NULL, 0) == 0);                                                    \
    }
ALL_NAMES(RMA_TYPES, RMA_NAMES, TEST_COLLECTIVES, )

/* Small numbers, of which every type holds the sums and products: PE pe has pe % 3 + 1 + i % 2 at i. */
#define OF(T, PE, I) ((T)((PE) % 3 + 1 + (I) % 2))
#define TEST_REDUCTION(N, T, FUNCTION, UP_TO, START, COMBINE)                                                                  \
    for (int i = 0; i < LEN; i++) dest[i] = (T)99, source[i] = OF(T, me, i);                                                   \
    CHECK(CALL(N, FUNCTION)(team, dest, source, LEN) == 0);                                                                    \
    for (int i = 0; i < LEN; i++) {                                                                                            \
        T all = START(T, i);                                                                                                   \
        for (int pe = 1; pe < (UP_TO); pe++) {                                                                                 \
            T one = OF(T, pe, i);                                                                                              \
            all = (T)(COMBINE);                                                                                                \
        }                                                                                                                      \
        CHECK(dest[i] == all);                                                                                                 \
    }                                                                                                                          \
    shmem_barrier_all();
#define FIRST(T, I) OF(T, 0, I)
#define FIRST_BUT_ON_0(T, I) (me == 0 ? (T)0 : OF(T, 0, I))
#define TEST_SUMS(A, N, T)                                                                                                     \
    static void sums_##N(void)                                                                                                 \
    {                                                                                                                          \
        T *dest = (T *)heap, *source = (T *)source_heap;                                                                       \
        TEST_REDUCTION(N, T, sum_reduce, n, FIRST, all + one)                                                                  \
        TEST_REDUCTION(N, T, prod_reduce, n, FIRST, all *one)                                                                  \
        TEST_REDUCTION(N, T, sum_inscan, me + 1, FIRST, all + one)                                                             \
        TEST_REDUCTION(N, T, sum_exscan, me, FIRST_BUT_ON_0, all + one)                                                        \
    }
ALL_NAMES(SUM_TYPES, RMA_NAMES, TEST_SUMS, )
#define TEST_ORDERED(A, N, T)                                                                                                  \
    static void ordered_##N(void)                                                                                              \
    {                                                                                                                          \
        T *dest = (T *)heap, *source = (T *)source_heap;                                                                       \
        TEST_REDUCTION(N, T, max_reduce, n, FIRST, all > one ? all : one)                                                      \
        TEST_REDUCTION(N, T, min_reduce, n, FIRST, all < one ? all : one)                                                      \
    }
ALL_NAMES(RMA_TYPES, RMA_NAMES, TEST_ORDERED, )
#define TEST_BITWISE(A, N, T)                                                                                                  \
    static void bitwise_##N(void)                                                                                              \
    {                                                                                                                          \
        T *dest = (T *)heap, *source = (T *)source_heap;                                                                       \
        TEST_REDUCTION(N, T, and_reduce, n, FIRST, all &one)                                                                   \
        TEST_REDUCTION(N, T, or_reduce, n, FIRST, all | one)                                                                   \
        TEST_REDUCTION(N, T, xor_reduce, n, FIRST, all ^ one)                                                                  \
    }
ALL_NAMES(BITWISE_TYPES, BITWISE_NAMES, TEST_BITWISE, )

#define RUN(TEST, N, T) TEST##_##N();

int main(void)
{
    shmem_init();
    me = shmem_my_pe(), n = shmem_n_pes();
    right = (me + 1) % n, left = (me + n - 1) % n;
    CHECK(n <= MOST);
    heap = shmem_calloc(LEN * MOST, 16), source_heap = shmem_calloc(LEN * MOST, 16);
    CHECK(heap != NULL && source_heap != NULL);
    CHECK(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0);
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) == 0);
    ALL_NAMES(RMA_TYPES, RMA_NAMES, RUN, rma)
    ALL_NAMES(EXTENDED_AMO_TYPES, AMO_NAMES, RUN, extended_amo)
    ALL_NAMES(AMO_TYPES, AMO_NAMES, RUN, amo)
    ALL_NAMES(BITWISE_AMO_TYPES, BITWISE_AMO_NAMES, RUN, bitwise_amo)
    ALL_NAMES(AMO_TYPES, AMO_NAMES, RUN, wait)
    wait_short(), wait_ushort();
    ALL_NAMES(AMO_TYPES, AMO_NAMES, RUN, sets)
#ifdef GENERIC
    sets_short(), sets_ushort();
#endif
    ALL_NAMES(RMA_TYPES, RMA_NAMES, RUN, collectives)
    ALL_NAMES(SUM_TYPES, RMA_NAMES, RUN, sums)
    ALL_NAMES(RMA_TYPES, RMA_NAMES, RUN, ordered)
    ALL_NAMES(BITWISE_TYPES, BITWISE_NAMES, RUN, bitwise)
    shmem_team_destroy(team);
    shmem_ctx_destroy(ctx);
    shmem_free(source_heap);
    shmem_free(heap);
    shmem_finalize();
    return 0;
}
