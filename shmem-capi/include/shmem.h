/* OpenSHMEM 1.6: shmem.h of `shmem`.
 *
 * Families of functions are rows, and types are tables: DO(…) of a row makes the prototypes of a function, in C++ also its
 * overloads. The generic forms of C11 choose by the type of an address, and by whether a context comes first. */
#ifndef SHMEM_H
#define SHMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <complex>
#endif

#define SHMEM_MAJOR_VERSION 1
#define SHMEM_MINOR_VERSION 6
#define SHMEM_MAX_NAME_LEN 64
#define SHMEM_VENDOR_STRING "shmem 0.1.0"

#define SHMEM_THREAD_SINGLE 0
#define SHMEM_THREAD_FUNNELED 1
#define SHMEM_THREAD_SERIALIZED 2
#define SHMEM_THREAD_MULTIPLE 3

typedef struct shmem_team_opaque *shmem_team_t;
typedef struct shmem_ctx_opaque *shmem_ctx_t;

typedef struct {
    int num_contexts;
} shmem_team_config_t;

typedef struct {
    size_t total_ops;
} shmem_ctx_session_config_t;

/* Numbers that are handles, without a cast that C++ programs may have their compilers warn of. */
#ifdef __cplusplus
#define SHMEM_HANDLE(TYPE, NUMBER) (reinterpret_cast<TYPE>(NUMBER))
#else
#define SHMEM_HANDLE(TYPE, NUMBER) ((TYPE)NUMBER)
#endif

#define SHMEM_TEAM_INVALID SHMEM_HANDLE(shmem_team_t, 0L)
#define SHMEM_TEAM_WORLD SHMEM_HANDLE(shmem_team_t, 1L)
#define SHMEM_TEAM_SHARED SHMEM_HANDLE(shmem_team_t, 2L)
#define SHMEM_TEAM_NUM_CONTEXTS 1L

#define SHMEM_CTX_INVALID SHMEM_HANDLE(shmem_ctx_t, 0L)
#define SHMEM_CTX_DEFAULT SHMEM_HANDLE(shmem_ctx_t, 1L)
#define SHMEM_CTX_SERIALIZED 1L
#define SHMEM_CTX_PRIVATE 2L
#define SHMEM_CTX_NOSTORE 4L
#define SHMEM_CTX_SESSION_TOTAL_OPS 1L
#define SHMEM_CTX_SESSION_BATCH 1L

#define SHMEM_SIGNAL_SET 0
#define SHMEM_SIGNAL_ADD 1

#define SHMEM_CMP_EQ 0
#define SHMEM_CMP_NE 1
#define SHMEM_CMP_GT 2
#define SHMEM_CMP_GE 3
#define SHMEM_CMP_LT 4
#define SHMEM_CMP_LE 5

#define SHMEM_MALLOC_ATOMICS_REMOTE 1L
#define SHMEM_MALLOC_SIGNAL_REMOTE 2L

/* Deprecated: of the collectives of active sets. */
#define SHMEM_SYNC_VALUE 0L
#define SHMEM_SYNC_SIZE 8
#define SHMEM_BARRIER_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_BCAST_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_COLLECT_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALL_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALLS_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_MIN_WRKDATA_SIZE 1

/* Deprecated: names with an underscore. */
#define _SHMEM_MAJOR_VERSION SHMEM_MAJOR_VERSION
#define _SHMEM_MINOR_VERSION SHMEM_MINOR_VERSION
#define _SHMEM_MAX_NAME_LEN SHMEM_MAX_NAME_LEN
#define _SHMEM_VENDOR_STRING SHMEM_VENDOR_STRING
#define _SHMEM_CMP_EQ SHMEM_CMP_EQ
#define _SHMEM_CMP_NE SHMEM_CMP_NE
#define _SHMEM_CMP_GT SHMEM_CMP_GT
#define _SHMEM_CMP_GE SHMEM_CMP_GE
#define _SHMEM_CMP_LT SHMEM_CMP_LT
#define _SHMEM_CMP_LE SHMEM_CMP_LE
#define _SHMEM_SYNC_VALUE SHMEM_SYNC_VALUE
#define _SHMEM_SYNC_SIZE SHMEM_SYNC_SIZE
#define _SHMEM_BARRIER_SYNC_SIZE SHMEM_BARRIER_SYNC_SIZE
#define _SHMEM_BCAST_SYNC_SIZE SHMEM_BCAST_SYNC_SIZE
#define _SHMEM_COLLECT_SYNC_SIZE SHMEM_COLLECT_SYNC_SIZE
#define _SHMEM_ALLTOALL_SYNC_SIZE SHMEM_ALLTOALL_SYNC_SIZE
#define _SHMEM_ALLTOALLS_SYNC_SIZE SHMEM_ALLTOALLS_SYNC_SIZE
#define _SHMEM_REDUCE_SYNC_SIZE SHMEM_REDUCE_SYNC_SIZE
#define _SHMEM_REDUCE_MIN_WRKDATA_SIZE SHMEM_REDUCE_MIN_WRKDATA_SIZE

/* In C++, the functions take C's complex numbers, too, which its compilers know; std::complex is laid out alike. */
#define SHMEM_COMPLEX(T) T _Complex

/* The tables of types: X(A, name, type). First those that are different types, of which the generic forms choose one; then
 * those that are other names of some of them. */
#define SHMEM_INTEGERS(X, A)                                                                                                   \
    X(A, char, char)                                                                                                           \
    X(A, schar, signed char)                                                                                                   \
    X(A, short, short)                                                                                                         \
    X(A, int, int)                                                                                                             \
    X(A, long, long)                                                                                                           \
    X(A, longlong, long long)                                                                                                  \
    X(A, uchar, unsigned char)                                                                                                 \
    X(A, ushort, unsigned short)                                                                                               \
    X(A, uint, unsigned int)                                                                                                   \
    X(A, ulong, unsigned long)                                                                                                 \
    X(A, ulonglong, unsigned long long)
#define SHMEM_FLOATS(X, A) X(A, float, float) X(A, double, double) X(A, longdouble, long double)
#define SHMEM_INTEGER_NAMES(X, A)                                                                                              \
    X(A, int8, int8_t)                                                                                                         \
    X(A, int16, int16_t)                                                                                                       \
    X(A, int32, int32_t)                                                                                                       \
    X(A, int64, int64_t)                                                                                                       \
    X(A, uint8, uint8_t)                                                                                                       \
    X(A, uint16, uint16_t)                                                                                                     \
    X(A, uint32, uint32_t)                                                                                                     \
    X(A, uint64, uint64_t)                                                                                                     \
    X(A, size, size_t)                                                                                                         \
    X(A, ptrdiff, ptrdiff_t)
#define SHMEM_COMPLEXES(X, A) X(A, complexd, SHMEM_COMPLEX(double)) X(A, complexf, SHMEM_COMPLEX(float))

#define SHMEM_RMA_TYPES(X, A) SHMEM_FLOATS(X, A) SHMEM_INTEGERS(X, A)
#define SHMEM_SUM_TYPES(X, A) SHMEM_RMA_TYPES(X, A) SHMEM_COMPLEXES(X, A)

#define SHMEM_AMO_TYPES(X, A)                                                                                                  \
    X(A, int, int)                                                                                                             \
    X(A, long, long)                                                                                                           \
    X(A, longlong, long long)                                                                                                  \
    X(A, uint, unsigned int)                                                                                                   \
    X(A, ulong, unsigned long)                                                                                                 \
    X(A, ulonglong, unsigned long long)
#define SHMEM_AMO_NAMES(X, A)                                                                                                  \
    X(A, int32, int32_t)                                                                                                       \
    X(A, int64, int64_t)                                                                                                       \
    X(A, uint32, uint32_t)                                                                                                     \
    X(A, uint64, uint64_t)                                                                                                     \
    X(A, size, size_t)                                                                                                         \
    X(A, ptrdiff, ptrdiff_t)
#define SHMEM_EXTENDED_AMO_TYPES(X, A) X(A, float, float) X(A, double, double) SHMEM_AMO_TYPES(X, A)

#define SHMEM_BITWISE_AMO_TYPES(X, A)                                                                                          \
    X(A, uint, unsigned int)                                                                                                   \
    X(A, ulong, unsigned long)                                                                                                 \
    X(A, ulonglong, unsigned long long)                                                                                        \
    X(A, int32, int32_t)                                                                                                       \
    X(A, int64, int64_t)
#define SHMEM_BITWISE_AMO_NAMES(X, A) X(A, uint32, uint32_t) X(A, uint64, uint64_t)

#define SHMEM_BITWISE_TYPES(X, A)                                                                                              \
    X(A, uchar, unsigned char)                                                                                                 \
    X(A, ushort, unsigned short)                                                                                               \
    X(A, uint, unsigned int)                                                                                                   \
    X(A, ulong, unsigned long)                                                                                                 \
    X(A, ulonglong, unsigned long long)                                                                                        \
    X(A, int8, int8_t)                                                                                                         \
    X(A, int16, int16_t)                                                                                                       \
    X(A, int32, int32_t)                                                                                                       \
    X(A, int64, int64_t)
#define SHMEM_BITWISE_NAMES(X, A)                                                                                              \
    X(A, uint8, uint8_t)                                                                                                       \
    X(A, uint16, uint16_t)                                                                                                     \
    X(A, uint32, uint32_t)                                                                                                     \
    X(A, uint64, uint64_t)                                                                                                     \
    X(A, size, size_t)

#define SHMEM_OLD_AMO_TYPES(X, A) X(A, int, int) X(A, long, long) X(A, longlong, long long)
#define SHMEM_OLD_EXTENDED_TYPES(X, A) X(A, float, float) X(A, double, double) SHMEM_OLD_AMO_TYPES(X, A)
#define SHMEM_OLD_BITWISE_TYPES(X, A) X(A, short, short) SHMEM_OLD_AMO_TYPES(X, A)
#define SHMEM_OLD_ORDERED_TYPES(X, A) SHMEM_OLD_BITWISE_TYPES(X, A) SHMEM_FLOATS(X, A)
#define SHMEM_OLD_SUM_TYPES(X, A) SHMEM_OLD_ORDERED_TYPES(X, A) SHMEM_COMPLEXES(X, A)

/* The rows: DO(name, result, function, parameters, arguments) for type T. Those up to the waits have a form with a context. */
#define SHMEM_RMA_ROWS(DO, N, T)                                                                                               \
    DO(N, void, put, (T *dest, const T *source, size_t nelems, int pe), (dest, source, nelems, pe))                            \
    DO(N, void, get, (T *dest, const T *source, size_t nelems, int pe), (dest, source, nelems, pe))                            \
    DO(N, void, put_nbi, (T *dest, const T *source, size_t nelems, int pe), (dest, source, nelems, pe))                        \
    DO(N, void, get_nbi, (T *dest, const T *source, size_t nelems, int pe), (dest, source, nelems, pe))                        \
    DO(N, void, p, (T *dest, T value, int pe), (dest, value, pe))                                                              \
    DO(N, T, g, (const T *source, int pe), (source, pe))                                                                       \
    DO(N, void, iput, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe),                         \
       (dest, source, dst, sst, nelems, pe))                                                                                   \
    DO(N, void, iget, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe),                         \
       (dest, source, dst, sst, nelems, pe))                                                                                   \
    DO(N, void, ibput, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe),         \
       (dest, source, dst, sst, bsize, nblocks, pe))                                                                           \
    DO(N, void, ibget, (T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe),         \
       (dest, source, dst, sst, bsize, nblocks, pe))                                                                           \
    DO(N, void, put_signal,                                                                                                    \
       (T *dest, const T *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe),                     \
       (dest, source, nelems, sig_addr, signal, sig_op, pe))                                                                   \
    DO(N, void, put_signal_nbi,                                                                                                \
       (T *dest, const T *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe),                     \
       (dest, source, nelems, sig_addr, signal, sig_op, pe))

#define SHMEM_EXTENDED_AMO_ROWS(DO, N, T)                                                                                      \
    DO(N, T, atomic_fetch, (const T *source, int pe), (source, pe))                                                            \
    DO(N, void, atomic_set, (T *dest, T value, int pe), (dest, value, pe))                                                     \
    DO(N, T, atomic_swap, (T *dest, T value, int pe), (dest, value, pe))                                                       \
    DO(N, void, atomic_fetch_nbi, (T *fetch, const T *source, int pe), (fetch, source, pe))                                    \
    DO(N, void, atomic_swap_nbi, (T *fetch, T *dest, T value, int pe), (fetch, dest, value, pe))

#define SHMEM_AMO_ROWS(DO, N, T)                                                                                               \
    DO(N, T, atomic_compare_swap, (T *dest, T cond, T value, int pe), (dest, cond, value, pe))                                 \
    DO(N, T, atomic_fetch_inc, (T *dest, int pe), (dest, pe))                                                                  \
    DO(N, void, atomic_inc, (T *dest, int pe), (dest, pe))                                                                     \
    DO(N, T, atomic_fetch_add, (T *dest, T value, int pe), (dest, value, pe))                                                  \
    DO(N, void, atomic_add, (T *dest, T value, int pe), (dest, value, pe))                                                     \
    DO(N, void, atomic_compare_swap_nbi, (T *fetch, T *dest, T cond, T value, int pe), (fetch, dest, cond, value, pe))         \
    DO(N, void, atomic_fetch_inc_nbi, (T *fetch, T *dest, int pe), (fetch, dest, pe))                                          \
    DO(N, void, atomic_fetch_add_nbi, (T *fetch, T *dest, T value, int pe), (fetch, dest, value, pe))

#define SHMEM_BITWISE_AMO_ROWS(DO, N, T)                                                                                       \
    DO(N, T, atomic_fetch_and, (T *dest, T value, int pe), (dest, value, pe))                                                  \
    DO(N, void, atomic_and, (T *dest, T value, int pe), (dest, value, pe))                                                     \
    DO(N, T, atomic_fetch_or, (T *dest, T value, int pe), (dest, value, pe))                                                   \
    DO(N, void, atomic_or, (T *dest, T value, int pe), (dest, value, pe))                                                      \
    DO(N, T, atomic_fetch_xor, (T *dest, T value, int pe), (dest, value, pe))                                                  \
    DO(N, void, atomic_xor, (T *dest, T value, int pe), (dest, value, pe))                                                     \
    DO(N, void, atomic_fetch_and_nbi, (T *fetch, T *dest, T value, int pe), (fetch, dest, value, pe))                          \
    DO(N, void, atomic_fetch_or_nbi, (T *fetch, T *dest, T value, int pe), (fetch, dest, value, pe))                           \
    DO(N, void, atomic_fetch_xor_nbi, (T *fetch, T *dest, T value, int pe), (fetch, dest, value, pe))

#define SHMEM_WAIT_ROWS(DO, N, T)                                                                                              \
    DO(N, void, wait_until, (T *ivar, int cmp, T cmp_value), (ivar, cmp, cmp_value))                                           \
    DO(N, int, test, (T *ivar, int cmp, T cmp_value), (ivar, cmp, cmp_value))

#define SHMEM_SET_ROWS(DO, N, T)                                                                                               \
    DO(N, void, wait_until_all, (T *ivars, size_t nelems, const int *status, int cmp, T cmp_value),                            \
       (ivars, nelems, status, cmp, cmp_value))                                                                                \
    DO(N, size_t, wait_until_any, (T *ivars, size_t nelems, const int *status, int cmp, T cmp_value),                          \
       (ivars, nelems, status, cmp, cmp_value))                                                                                \
    DO(N, size_t, wait_until_some, (T *ivars, size_t nelems, size_t *indices, const int *status, int cmp, T cmp_value),        \
       (ivars, nelems, indices, status, cmp, cmp_value))                                                                       \
    DO(N, void, wait_until_all_vector, (T *ivars, size_t nelems, const int *status, int cmp, const T *cmp_values),             \
       (ivars, nelems, status, cmp, cmp_values))                                                                               \
    DO(N, size_t, wait_until_any_vector, (T *ivars, size_t nelems, const int *status, int cmp, const T *cmp_values),           \
       (ivars, nelems, status, cmp, cmp_values))                                                                               \
    DO(N, size_t, wait_until_some_vector,                                                                                      \
       (T *ivars, size_t nelems, size_t *indices, const int *status, int cmp, const T *cmp_values),                            \
       (ivars, nelems, indices, status, cmp, cmp_values))                                                                      \
    DO(N, int, test_all, (T *ivars, size_t nelems, const int *status, int cmp, T cmp_value),                                   \
       (ivars, nelems, status, cmp, cmp_value))                                                                                \
    DO(N, size_t, test_any, (T *ivars, size_t nelems, const int *status, int cmp, T cmp_value),                                \
       (ivars, nelems, status, cmp, cmp_value))                                                                                \
    DO(N, size_t, test_some, (T *ivars, size_t nelems, size_t *indices, const int *status, int cmp, T cmp_value),              \
       (ivars, nelems, indices, status, cmp, cmp_value))                                                                       \
    DO(N, int, test_all_vector, (T *ivars, size_t nelems, const int *status, int cmp, const T *cmp_values),                    \
       (ivars, nelems, status, cmp, cmp_values))                                                                               \
    DO(N, size_t, test_any_vector, (T *ivars, size_t nelems, const int *status, int cmp, const T *cmp_values),                 \
       (ivars, nelems, status, cmp, cmp_values))                                                                               \
    DO(N, size_t, test_some_vector,                                                                                            \
       (T *ivars, size_t nelems, size_t *indices, const int *status, int cmp, const T *cmp_values),                            \
       (ivars, nelems, indices, status, cmp, cmp_values))

#define SHMEM_COLLECTIVE_ROWS(DO, N, T)                                                                                        \
    DO(N, int, alltoall, (shmem_team_t team, T *dest, const T *source, size_t nelems), (team, dest, source, nelems))           \
    DO(N, int, alltoalls,                                                                                                      \
       (shmem_team_t team, T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems),                             \
       (team, dest, source, dst, sst, nelems))                                                                                 \
    DO(N, int, broadcast, (shmem_team_t team, T *dest, const T *source, size_t nelems, int PE_root),                           \
       (team, dest, source, nelems, PE_root))                                                                                  \
    DO(N, int, collect, (shmem_team_t team, T *dest, const T *source, size_t nelems), (team, dest, source, nelems))            \
    DO(N, int, fcollect, (shmem_team_t team, T *dest, const T *source, size_t nelems), (team, dest, source, nelems))

#define SHMEM_REDUCTION(DO, N, T, FUNCTION)                                                                                    \
    DO(N, int, FUNCTION, (shmem_team_t team, T *dest, const T *source, size_t nreduce), (team, dest, source, nreduce))
#define SHMEM_SUM_ROWS(DO, N, T)                                                                                               \
    SHMEM_REDUCTION(DO, N, T, sum_reduce)                                                                                      \
    SHMEM_REDUCTION(DO, N, T, prod_reduce)                                                                                     \
    SHMEM_REDUCTION(DO, N, T, sum_inscan)                                                                                      \
    SHMEM_REDUCTION(DO, N, T, sum_exscan)
#define SHMEM_ORDERED_ROWS(DO, N, T) SHMEM_REDUCTION(DO, N, T, max_reduce) SHMEM_REDUCTION(DO, N, T, min_reduce)
#define SHMEM_BITWISE_ROWS(DO, N, T)                                                                                           \
    SHMEM_REDUCTION(DO, N, T, and_reduce) SHMEM_REDUCTION(DO, N, T, or_reduce) SHMEM_REDUCTION(DO, N, T, xor_reduce)

#define SHMEM_OLD_AMO_ROWS(DO, N, T)                                                                                           \
    DO(N, T, cswap, (T *dest, T cond, T value, int pe), (dest, cond, value, pe))                                               \
    DO(N, T, finc, (T *dest, int pe), (dest, pe))                                                                              \
    DO(N, void, inc, (T *dest, int pe), (dest, pe))                                                                            \
    DO(N, T, fadd, (T *dest, T value, int pe), (dest, value, pe))                                                              \
    DO(N, void, add, (T *dest, T value, int pe), (dest, value, pe))
#define SHMEM_OLD_EXTENDED_ROWS(DO, N, T)                                                                                      \
    DO(N, T, swap, (T *dest, T value, int pe), (dest, value, pe))                                                              \
    DO(N, T, fetch, (const T *dest, int pe), (dest, pe))                                                                       \
    DO(N, void, set, (T *dest, T value, int pe), (dest, value, pe))
#define SHMEM_OLD_WAIT_ROWS(DO, N, T) DO(N, void, wait, (T *ivar, T cmp_value), (ivar, cmp_value))

#define SHMEM_TO_ALL(DO, N, T, FUNCTION)                                                                                       \
    DO(N, void, FUNCTION,                                                                                                      \
       (T *dest, const T *source, int nreduce, int PE_start, int logPE_stride, int PE_size, T *pWrk, long *pSync),             \
       (dest, source, nreduce, PE_start, logPE_stride, PE_size, pWrk, pSync))
#define SHMEM_OLD_SUM_ROWS(DO, N, T) SHMEM_TO_ALL(DO, N, T, sum_to_all) SHMEM_TO_ALL(DO, N, T, prod_to_all)
#define SHMEM_OLD_ORDERED_ROWS(DO, N, T) SHMEM_TO_ALL(DO, N, T, max_to_all) SHMEM_TO_ALL(DO, N, T, min_to_all)
#define SHMEM_OLD_BITWISE_ROWS(DO, N, T)                                                                                       \
    SHMEM_TO_ALL(DO, N, T, and_to_all) SHMEM_TO_ALL(DO, N, T, or_to_all) SHMEM_TO_ALL(DO, N, T, xor_to_all)

/* A parameter list without its parentheses. */
#define SHMEM_BARE(...) __VA_ARGS__

/* Prototypes: each function with its twin for tools, and those that have it with a context. */
#define SHMEM_PROTOTYPE(RESULT, NAME, PARAMETERS)                                                                              \
    RESULT NAME PARAMETERS;                                                                                                    \
    RESULT p##NAME PARAMETERS;
#define SHMEM_DECLARE(N, RESULT, FUNCTION, PARAMETERS, ARGUMENTS)                                                              \
    SHMEM_PROTOTYPE(RESULT, shmem_##N##_##FUNCTION, PARAMETERS)
#define SHMEM_DECLARE_CTX(N, RESULT, FUNCTION, PARAMETERS, ARGUMENTS)                                                          \
    SHMEM_PROTOTYPE(RESULT, shmem_##N##_##FUNCTION, PARAMETERS)                                                                \
    SHMEM_PROTOTYPE(RESULT, shmem_ctx_##N##_##FUNCTION, (shmem_ctx_t ctx, SHMEM_BARE PARAMETERS))
#define SHMEM_DECLARE_ROWS(ROWS, N, T) ROWS(SHMEM_DECLARE, N, T)
#define SHMEM_DECLARE_CTX_ROWS(ROWS, N, T) ROWS(SHMEM_DECLARE_CTX, N, T)

/* Those named by the size of an element, in bits, or by memory. */
#define SHMEM_CTX_PROTOTYPE(RESULT, NAME, PARAMETERS)                                                                          \
    SHMEM_PROTOTYPE(RESULT, shmem_##NAME, PARAMETERS)                                                                          \
    SHMEM_PROTOTYPE(RESULT, shmem_ctx_##NAME, (shmem_ctx_t ctx, SHMEM_BARE PARAMETERS))
#define SHMEM_DECLARE_SIZE(BITS)                                                                                               \
    SHMEM_CTX_PROTOTYPE(void, put##BITS, (void *dest, const void *source, size_t nelems, int pe))                              \
    SHMEM_CTX_PROTOTYPE(void, get##BITS, (void *dest, const void *source, size_t nelems, int pe))                              \
    SHMEM_CTX_PROTOTYPE(void, put##BITS##_nbi, (void *dest, const void *source, size_t nelems, int pe))                        \
    SHMEM_CTX_PROTOTYPE(void, get##BITS##_nbi, (void *dest, const void *source, size_t nelems, int pe))                        \
    SHMEM_CTX_PROTOTYPE(                                                                                                       \
        void, put##BITS##_signal,                                                                                              \
        (void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe))              \
    SHMEM_CTX_PROTOTYPE(                                                                                                       \
        void, put##BITS##_signal_nbi,                                                                                          \
        (void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe))
#define SHMEM_DECLARE_STRIDED_SIZE(BITS)                                                                                       \
    SHMEM_CTX_PROTOTYPE(                                                                                                       \
        void, iput##BITS, (void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe))               \
    SHMEM_CTX_PROTOTYPE(                                                                                                       \
        void, iget##BITS, (void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe))               \
    SHMEM_CTX_PROTOTYPE(                                                                                                       \
        void, ibput##BITS,                                                                                                     \
        (void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe))                  \
    SHMEM_CTX_PROTOTYPE(                                                                                                       \
        void, ibget##BITS,                                                                                                     \
        (void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe))
#define SHMEM_DECLARE_OLD_SIZE(BITS)                                                                                           \
    SHMEM_PROTOTYPE(                                                                                                           \
        void, shmem_broadcast##BITS,                                                                                           \
        (void *dest, const void *source, size_t nelems, int PE_root, int PE_start, int logPE_stride, int PE_size, long *pSync)) \
    SHMEM_PROTOTYPE(                                                                                                           \
        void, shmem_collect##BITS,                                                                                             \
        (void *dest, const void *source, size_t nelems, int PE_start, int logPE_stride, int PE_size, long *pSync))             \
    SHMEM_PROTOTYPE(                                                                                                           \
        void, shmem_fcollect##BITS,                                                                                            \
        (void *dest, const void *source, size_t nelems, int PE_start, int logPE_stride, int PE_size, long *pSync))             \
    SHMEM_PROTOTYPE(                                                                                                           \
        void, shmem_alltoall##BITS,                                                                                            \
        (void *dest, const void *source, size_t nelems, int PE_start, int logPE_stride, int PE_size, long *pSync))             \
    SHMEM_PROTOTYPE(                                                                                                           \
        void, shmem_alltoalls##BITS,                                                                                           \
        (void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int PE_start, int logPE_stride,          \
         int PE_size, long *pSync))

#ifdef __cplusplus
extern "C" {
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wreturn-type-c-linkage"
#endif
#endif

/* Start, end, and questions. */
SHMEM_PROTOTYPE(void, shmem_init, (void))
SHMEM_PROTOTYPE(int, shmem_init_thread, (int requested, int *provided))
SHMEM_PROTOTYPE(void, shmem_query_thread, (int *provided))
SHMEM_PROTOTYPE(void, shmem_query_initialized, (int *initialized))
SHMEM_PROTOTYPE(void, shmem_finalize, (void))
SHMEM_PROTOTYPE(void, shmem_global_exit, (int status))
SHMEM_PROTOTYPE(int, shmem_my_pe, (void))
SHMEM_PROTOTYPE(int, shmem_n_pes, (void))
SHMEM_PROTOTYPE(int, shmem_pe_accessible, (int pe))
SHMEM_PROTOTYPE(int, shmem_addr_accessible, (const void *addr, int pe))
SHMEM_PROTOTYPE(void *, shmem_ptr, (const void *dest, int pe))
SHMEM_PROTOTYPE(void *, shmem_team_ptr, (shmem_team_t team, const void *dest, int pe))
SHMEM_PROTOTYPE(void, shmem_info_get_version, (int *major, int *minor))
SHMEM_PROTOTYPE(void, shmem_info_get_name, (char *name))
SHMEM_PROTOTYPE(void, shmem_pcontrol, (int level, ...))

/* The symmetric heap. */
SHMEM_PROTOTYPE(void *, shmem_malloc, (size_t size))
SHMEM_PROTOTYPE(void, shmem_free, (void *ptr))
SHMEM_PROTOTYPE(void *, shmem_realloc, (void *ptr, size_t size))
SHMEM_PROTOTYPE(void *, shmem_align, (size_t alignment, size_t size))
SHMEM_PROTOTYPE(void *, shmem_malloc_with_hints, (size_t size, long hints))
SHMEM_PROTOTYPE(void *, shmem_calloc, (size_t count, size_t size))

/* Teams and contexts. */
SHMEM_PROTOTYPE(int, shmem_team_my_pe, (shmem_team_t team))
SHMEM_PROTOTYPE(int, shmem_team_n_pes, (shmem_team_t team))
SHMEM_PROTOTYPE(int, shmem_team_get_config, (shmem_team_t team, long config_mask, shmem_team_config_t *config))
SHMEM_PROTOTYPE(int, shmem_team_translate_pe, (shmem_team_t src_team, int src_pe, shmem_team_t dest_team))
SHMEM_PROTOTYPE(int, shmem_team_split_strided,
                (shmem_team_t parent_team, int start, int stride, int size, const shmem_team_config_t *config,
                 long config_mask, shmem_team_t *new_team))
SHMEM_PROTOTYPE(int, shmem_team_split_2d,
                (shmem_team_t parent_team, int xrange, const shmem_team_config_t *xaxis_config, long xaxis_mask,
                 shmem_team_t *xaxis_team, const shmem_team_config_t *yaxis_config, long yaxis_mask,
                 shmem_team_t *yaxis_team))
SHMEM_PROTOTYPE(void, shmem_team_destroy, (shmem_team_t team))
SHMEM_PROTOTYPE(int, shmem_team_sync, (shmem_team_t team))
SHMEM_PROTOTYPE(int, shmem_ctx_create, (long options, shmem_ctx_t *ctx))
SHMEM_PROTOTYPE(int, shmem_team_create_ctx, (shmem_team_t team, long options, shmem_ctx_t *ctx))
SHMEM_PROTOTYPE(void, shmem_ctx_destroy, (shmem_ctx_t ctx))
SHMEM_PROTOTYPE(int, shmem_ctx_get_team, (shmem_ctx_t ctx, shmem_team_t *team))
SHMEM_PROTOTYPE(void, shmem_ctx_session_start,
                (shmem_ctx_t ctx, long options, const shmem_ctx_session_config_t *config, long config_mask))
SHMEM_PROTOTYPE(void, shmem_ctx_session_stop, (shmem_ctx_t ctx))

/* Order, locks, signals. */
SHMEM_PROTOTYPE(void, shmem_fence, (void))
SHMEM_PROTOTYPE(void, shmem_ctx_fence, (shmem_ctx_t ctx))
SHMEM_PROTOTYPE(void, shmem_quiet, (void))
SHMEM_PROTOTYPE(void, shmem_ctx_quiet, (shmem_ctx_t ctx))
SHMEM_PROTOTYPE(void, shmem_pe_quiet, (const int *target_pes, size_t npes))
SHMEM_PROTOTYPE(void, shmem_ctx_pe_quiet, (shmem_ctx_t ctx, const int *target_pes, size_t npes))
SHMEM_PROTOTYPE(void, shmem_barrier_all, (void))
SHMEM_PROTOTYPE(void, shmem_sync_all, (void))
SHMEM_PROTOTYPE(void, shmem_set_lock, (long *lock))
SHMEM_PROTOTYPE(int, shmem_test_lock, (long *lock))
SHMEM_PROTOTYPE(void, shmem_clear_lock, (long *lock))
SHMEM_PROTOTYPE(uint64_t, shmem_signal_fetch, (const uint64_t *sig_addr))
SHMEM_PROTOTYPE(uint64_t, shmem_signal_wait_until, (uint64_t *sig_addr, int cmp, uint64_t cmp_value))
SHMEM_CTX_PROTOTYPE(void, signal_add, (uint64_t *sig_addr, uint64_t signal, int pe))
SHMEM_CTX_PROTOTYPE(void, signal_set, (uint64_t *sig_addr, uint64_t signal, int pe))

/* Put, get, atomics, waits. */
SHMEM_RMA_TYPES(SHMEM_DECLARE_CTX_ROWS, SHMEM_RMA_ROWS)
SHMEM_INTEGER_NAMES(SHMEM_DECLARE_CTX_ROWS, SHMEM_RMA_ROWS)
SHMEM_DECLARE_SIZE(8)
SHMEM_DECLARE_SIZE(16)
SHMEM_DECLARE_SIZE(32)
SHMEM_DECLARE_SIZE(64)
SHMEM_DECLARE_SIZE(128)
SHMEM_DECLARE_SIZE(mem)
SHMEM_DECLARE_STRIDED_SIZE(8)
SHMEM_DECLARE_STRIDED_SIZE(16)
SHMEM_DECLARE_STRIDED_SIZE(32)
SHMEM_DECLARE_STRIDED_SIZE(64)
SHMEM_DECLARE_STRIDED_SIZE(128)
SHMEM_EXTENDED_AMO_TYPES(SHMEM_DECLARE_CTX_ROWS, SHMEM_EXTENDED_AMO_ROWS)
SHMEM_AMO_NAMES(SHMEM_DECLARE_CTX_ROWS, SHMEM_EXTENDED_AMO_ROWS)
SHMEM_AMO_TYPES(SHMEM_DECLARE_CTX_ROWS, SHMEM_AMO_ROWS)
SHMEM_AMO_NAMES(SHMEM_DECLARE_CTX_ROWS, SHMEM_AMO_ROWS)
SHMEM_BITWISE_AMO_TYPES(SHMEM_DECLARE_CTX_ROWS, SHMEM_BITWISE_AMO_ROWS)
SHMEM_BITWISE_AMO_NAMES(SHMEM_DECLARE_CTX_ROWS, SHMEM_BITWISE_AMO_ROWS)
SHMEM_AMO_TYPES(SHMEM_DECLARE_ROWS, SHMEM_WAIT_ROWS)
SHMEM_AMO_NAMES(SHMEM_DECLARE_ROWS, SHMEM_WAIT_ROWS)
SHMEM_WAIT_ROWS(SHMEM_DECLARE, short, short)
SHMEM_WAIT_ROWS(SHMEM_DECLARE, ushort, unsigned short)
SHMEM_AMO_TYPES(SHMEM_DECLARE_ROWS, SHMEM_SET_ROWS)
SHMEM_AMO_NAMES(SHMEM_DECLARE_ROWS, SHMEM_SET_ROWS)
/* Sets of short variables, which the specification has not: extensions, but part of the forms without a type. */
#define SHMEM_DECLARE_EXTENSION(N, RESULT, FUNCTION, PARAMETERS, ARGUMENTS)                                                    \
    SHMEM_PROTOTYPE(RESULT, shmemx_##N##_##FUNCTION, PARAMETERS)
SHMEM_SET_ROWS(SHMEM_DECLARE_EXTENSION, short, short)
SHMEM_SET_ROWS(SHMEM_DECLARE_EXTENSION, ushort, unsigned short)

/* Collectives of teams. */
SHMEM_RMA_TYPES(SHMEM_DECLARE_ROWS, SHMEM_COLLECTIVE_ROWS)
SHMEM_INTEGER_NAMES(SHMEM_DECLARE_ROWS, SHMEM_COLLECTIVE_ROWS)
SHMEM_PROTOTYPE(int, shmem_alltoallmem, (shmem_team_t team, void *dest, const void *source, size_t nelems))
SHMEM_PROTOTYPE(int, shmem_alltoallsmem,
                (shmem_team_t team, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems))
SHMEM_PROTOTYPE(int, shmem_broadcastmem, (shmem_team_t team, void *dest, const void *source, size_t nelems, int PE_root))
SHMEM_PROTOTYPE(int, shmem_collectmem, (shmem_team_t team, void *dest, const void *source, size_t nelems))
SHMEM_PROTOTYPE(int, shmem_fcollectmem, (shmem_team_t team, void *dest, const void *source, size_t nelems))
SHMEM_SUM_TYPES(SHMEM_DECLARE_ROWS, SHMEM_SUM_ROWS)
SHMEM_INTEGER_NAMES(SHMEM_DECLARE_ROWS, SHMEM_SUM_ROWS)
SHMEM_RMA_TYPES(SHMEM_DECLARE_ROWS, SHMEM_ORDERED_ROWS)
SHMEM_INTEGER_NAMES(SHMEM_DECLARE_ROWS, SHMEM_ORDERED_ROWS)
SHMEM_BITWISE_TYPES(SHMEM_DECLARE_ROWS, SHMEM_BITWISE_ROWS)
SHMEM_BITWISE_NAMES(SHMEM_DECLARE_ROWS, SHMEM_BITWISE_ROWS)

/* Deprecated. */
SHMEM_PROTOTYPE(void, start_pes, (int npes))
SHMEM_PROTOTYPE(int, _my_pe, (void))
SHMEM_PROTOTYPE(int, _num_pes, (void))
SHMEM_PROTOTYPE(void *, shmalloc, (size_t size))
SHMEM_PROTOTYPE(void, shfree, (void *ptr))
SHMEM_PROTOTYPE(void *, shrealloc, (void *ptr, size_t size))
SHMEM_PROTOTYPE(void *, shmemalign, (size_t alignment, size_t size))
SHMEM_PROTOTYPE(void, shmem_barrier, (int PE_start, int logPE_stride, int PE_size, long *pSync))
SHMEM_PROTOTYPE(void, shmem_sync, (int PE_start, int logPE_stride, int PE_size, long *pSync))
SHMEM_PROTOTYPE(void, shmem_wait, (long *ivar, long cmp_value))
SHMEM_PROTOTYPE(void, shmem_wait_until, (long *ivar, int cmp, long cmp_value))
SHMEM_PROTOTYPE(void, shmem_clear_cache_inv, (void))
SHMEM_PROTOTYPE(void, shmem_set_cache_inv, (void))
SHMEM_PROTOTYPE(void, shmem_clear_cache_line_inv, (void *dest))
SHMEM_PROTOTYPE(void, shmem_set_cache_line_inv, (void *dest))
SHMEM_PROTOTYPE(void, shmem_udcflush, (void))
SHMEM_PROTOTYPE(void, shmem_udcflush_line, (void *dest))
SHMEM_DECLARE_OLD_SIZE(32)
SHMEM_DECLARE_OLD_SIZE(64)
SHMEM_OLD_AMO_TYPES(SHMEM_DECLARE_ROWS, SHMEM_OLD_AMO_ROWS)
SHMEM_OLD_EXTENDED_TYPES(SHMEM_DECLARE_ROWS, SHMEM_OLD_EXTENDED_ROWS)
SHMEM_OLD_BITWISE_TYPES(SHMEM_DECLARE_ROWS, SHMEM_OLD_WAIT_ROWS)
SHMEM_OLD_SUM_TYPES(SHMEM_DECLARE_ROWS, SHMEM_OLD_SUM_ROWS)
SHMEM_OLD_ORDERED_TYPES(SHMEM_DECLARE_ROWS, SHMEM_OLD_ORDERED_ROWS)
SHMEM_OLD_BITWISE_TYPES(SHMEM_DECLARE_ROWS, SHMEM_OLD_BITWISE_ROWS)

#ifdef __cplusplus
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
}

/* C++: the same names without a type, for every type. */
#define SHMEM_OVERLOAD(N, RESULT, FUNCTION, PARAMETERS, ARGUMENTS)                                                             \
    static inline RESULT shmem_##FUNCTION PARAMETERS { return shmem_##N##_##FUNCTION ARGUMENTS; }
#define SHMEM_OVERLOAD_CTX(N, RESULT, FUNCTION, PARAMETERS, ARGUMENTS)                                                         \
    SHMEM_OVERLOAD(N, RESULT, FUNCTION, PARAMETERS, ARGUMENTS)                                                                 \
    static inline RESULT shmem_##FUNCTION(shmem_ctx_t ctx, SHMEM_BARE PARAMETERS)                                              \
    {                                                                                                                          \
        return shmem_ctx_##N##_##FUNCTION(ctx, SHMEM_BARE ARGUMENTS);                                                          \
    }
#define SHMEM_OVERLOAD_ROWS(ROWS, N, T) ROWS(SHMEM_OVERLOAD, N, T)
#define SHMEM_OVERLOAD_CTX_ROWS(ROWS, N, T) ROWS(SHMEM_OVERLOAD_CTX, N, T)

SHMEM_RMA_TYPES(SHMEM_OVERLOAD_CTX_ROWS, SHMEM_RMA_ROWS)
SHMEM_EXTENDED_AMO_TYPES(SHMEM_OVERLOAD_CTX_ROWS, SHMEM_EXTENDED_AMO_ROWS)
SHMEM_AMO_TYPES(SHMEM_OVERLOAD_CTX_ROWS, SHMEM_AMO_ROWS)
SHMEM_BITWISE_AMO_TYPES(SHMEM_OVERLOAD_CTX_ROWS, SHMEM_BITWISE_AMO_ROWS)
SHMEM_WAIT_ROWS(SHMEM_OVERLOAD, short, short)
SHMEM_WAIT_ROWS(SHMEM_OVERLOAD, ushort, unsigned short)
/* The function for long is there already under the name without a type. */
#define SHMEM_OVERLOAD_WAIT(ROWS, N, T)                                                                                        \
    static inline void shmem_wait_until(T *ivar, int cmp, T cmp_value) { shmem_##N##_wait_until(ivar, cmp, cmp_value); }
#define SHMEM_OVERLOAD_TEST(ROWS, N, T)                                                                                        \
    static inline int shmem_test(T *ivar, int cmp, T cmp_value) { return shmem_##N##_test(ivar, cmp, cmp_value); }
#define SHMEM_AMO_TYPES_BUT_LONG(X, A)                                                                                         \
    X(A, int, int)                                                                                                             \
    X(A, longlong, long long)                                                                                                  \
    X(A, uint, unsigned int)                                                                                                   \
    X(A, ulong, unsigned long)                                                                                                 \
    X(A, ulonglong, unsigned long long)
SHMEM_AMO_TYPES_BUT_LONG(SHMEM_OVERLOAD_WAIT, )
SHMEM_AMO_TYPES(SHMEM_OVERLOAD_TEST, )
SHMEM_AMO_TYPES(SHMEM_OVERLOAD_ROWS, SHMEM_SET_ROWS)
#define SHMEM_OVERLOAD_EXTENSION(N, RESULT, FUNCTION, PARAMETERS, ARGUMENTS)                                                   \
    static inline RESULT shmem_##FUNCTION PARAMETERS { return shmemx_##N##_##FUNCTION ARGUMENTS; }
SHMEM_SET_ROWS(SHMEM_OVERLOAD_EXTENSION, short, short)
SHMEM_SET_ROWS(SHMEM_OVERLOAD_EXTENSION, ushort, unsigned short)
SHMEM_RMA_TYPES(SHMEM_OVERLOAD_ROWS, SHMEM_COLLECTIVE_ROWS)
SHMEM_SUM_TYPES(SHMEM_OVERLOAD_ROWS, SHMEM_SUM_ROWS)
#define SHMEM_OVERLOAD_COMPLEX(N, T, FUNCTION)                                                                                 \
    static inline int shmem_##N##_##FUNCTION(                                                                                  \
        shmem_team_t team, std::complex<T> *dest, const std::complex<T> *source, size_t nelems)                                \
    {                                                                                                                          \
        return shmem_##N##_##FUNCTION(team, reinterpret_cast<SHMEM_COMPLEX(T) *>(dest),                                        \
                                      reinterpret_cast<const SHMEM_COMPLEX(T) *>(source), nelems);                             \
    }                                                                                                                          \
    static inline int shmem_##FUNCTION(                                                                                        \
        shmem_team_t team, std::complex<T> *dest, const std::complex<T> *source, size_t nelems)                                \
    {                                                                                                                          \
        return shmem_##N##_##FUNCTION(team, dest, source, nelems);                                                             \
    }
#define SHMEM_OVERLOAD_COMPLEX_ROWS(N, T)                                                                                      \
    SHMEM_OVERLOAD_COMPLEX(N, T, sum_reduce)                                                                                   \
    SHMEM_OVERLOAD_COMPLEX(N, T, prod_reduce)                                                                                  \
    SHMEM_OVERLOAD_COMPLEX(N, T, sum_inscan)                                                                                   \
    SHMEM_OVERLOAD_COMPLEX(N, T, sum_exscan)
SHMEM_OVERLOAD_COMPLEX_ROWS(complexd, double)
SHMEM_OVERLOAD_COMPLEX_ROWS(complexf, float)
SHMEM_RMA_TYPES(SHMEM_OVERLOAD_ROWS, SHMEM_ORDERED_ROWS)
SHMEM_BITWISE_TYPES(SHMEM_OVERLOAD_ROWS, SHMEM_BITWISE_ROWS)
SHMEM_OLD_AMO_TYPES(SHMEM_OVERLOAD_ROWS, SHMEM_OLD_AMO_ROWS)
SHMEM_OLD_EXTENDED_TYPES(SHMEM_OVERLOAD_ROWS, SHMEM_OLD_EXTENDED_ROWS)
SHMEM_OLD_WAIT_ROWS(SHMEM_OVERLOAD, short, short)
SHMEM_OLD_WAIT_ROWS(SHMEM_OVERLOAD, int, int)
SHMEM_OLD_WAIT_ROWS(SHMEM_OVERLOAD, longlong, long long)
static inline int shmem_sync(shmem_team_t team) { return shmem_team_sync(team); }

#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L

/* C11: the same names without a type, by the type of the first address. An address of any other type selects what no call
 * fits. */
void shmem_has_no_function_for_this_type(void);

#define SHMEM_FIRST(FIRST, ...) FIRST
#define SHMEM_SECOND(FIRST, SECOND, ...) SECOND
#define SHMEM_CASE(FUNCTION, N, T) T * : shmem_##N##_##FUNCTION,
#define SHMEM_CASE_CTX(FUNCTION, N, T) T * : shmem_ctx_##N##_##FUNCTION,
#define SHMEM_CASE_CONST(FUNCTION, N, T) T * : shmem_##N##_##FUNCTION, const T * : shmem_##N##_##FUNCTION,
#define SHMEM_CASE_CONST_CTX(FUNCTION, N, T) T * : shmem_ctx_##N##_##FUNCTION, const T * : shmem_ctx_##N##_##FUNCTION,

/* By the first argument, or by the second where a context comes first. */
#define SHMEM_SELECT(TYPES, CASE, FUNCTION, ...)                                                                               \
    _Generic(SHMEM_FIRST(__VA_ARGS__, 0),                                                                                      \
        shmem_ctx_t: _Generic(SHMEM_SECOND(__VA_ARGS__, 0),                                                                    \
            TYPES(CASE##_CTX, FUNCTION) default: shmem_has_no_function_for_this_type),                                         \
        TYPES(CASE, FUNCTION) default: shmem_has_no_function_for_this_type)(__VA_ARGS__)
/* By the first argument of those that have no context, and by the second of those that have a team. */
#define SHMEM_SELECT_FIRST(TYPES, FUNCTION, ...)                                                                               \
    _Generic(SHMEM_FIRST(__VA_ARGS__, 0),                                                                                      \
        TYPES(SHMEM_CASE, FUNCTION) default: shmem_has_no_function_for_this_type)(__VA_ARGS__)
#define SHMEM_SELECT_SECOND(TYPES, FUNCTION, ...)                                                                              \
    _Generic(SHMEM_SECOND(__VA_ARGS__, 0),                                                                                     \
        TYPES(SHMEM_CASE, FUNCTION) default: shmem_has_no_function_for_this_type)(__VA_ARGS__)

#define shmem_put(...) SHMEM_SELECT(SHMEM_RMA_TYPES, SHMEM_CASE, put, __VA_ARGS__)
#define shmem_get(...) SHMEM_SELECT(SHMEM_RMA_TYPES, SHMEM_CASE, get, __VA_ARGS__)
#define shmem_put_nbi(...) SHMEM_SELECT(SHMEM_RMA_TYPES, SHMEM_CASE, put_nbi, __VA_ARGS__)
#define shmem_get_nbi(...) SHMEM_SELECT(SHMEM_RMA_TYPES, SHMEM_CASE, get_nbi, __VA_ARGS__)
#define shmem_p(...) SHMEM_SELECT(SHMEM_RMA_TYPES, SHMEM_CASE, p, __VA_ARGS__)
#define shmem_g(...) SHMEM_SELECT(SHMEM_RMA_TYPES, SHMEM_CASE_CONST, g, __VA_ARGS__)
#define shmem_iput(...) SHMEM_SELECT(SHMEM_RMA_TYPES, SHMEM_CASE, iput, __VA_ARGS__)
#define shmem_iget(...) SHMEM_SELECT(SHMEM_RMA_TYPES, SHMEM_CASE, iget, __VA_ARGS__)
#define shmem_ibput(...) SHMEM_SELECT(SHMEM_RMA_TYPES, SHMEM_CASE, ibput, __VA_ARGS__)
#define shmem_ibget(...) SHMEM_SELECT(SHMEM_RMA_TYPES, SHMEM_CASE, ibget, __VA_ARGS__)
#define shmem_put_signal(...) SHMEM_SELECT(SHMEM_RMA_TYPES, SHMEM_CASE, put_signal, __VA_ARGS__)
#define shmem_put_signal_nbi(...) SHMEM_SELECT(SHMEM_RMA_TYPES, SHMEM_CASE, put_signal_nbi, __VA_ARGS__)

#define shmem_atomic_fetch(...) SHMEM_SELECT(SHMEM_EXTENDED_AMO_TYPES, SHMEM_CASE_CONST, atomic_fetch, __VA_ARGS__)
#define shmem_atomic_set(...) SHMEM_SELECT(SHMEM_EXTENDED_AMO_TYPES, SHMEM_CASE, atomic_set, __VA_ARGS__)
#define shmem_atomic_swap(...) SHMEM_SELECT(SHMEM_EXTENDED_AMO_TYPES, SHMEM_CASE, atomic_swap, __VA_ARGS__)
#define shmem_atomic_fetch_nbi(...) SHMEM_SELECT(SHMEM_EXTENDED_AMO_TYPES, SHMEM_CASE, atomic_fetch_nbi, __VA_ARGS__)
#define shmem_atomic_swap_nbi(...) SHMEM_SELECT(SHMEM_EXTENDED_AMO_TYPES, SHMEM_CASE, atomic_swap_nbi, __VA_ARGS__)
#define shmem_atomic_compare_swap(...) SHMEM_SELECT(SHMEM_AMO_TYPES, SHMEM_CASE, atomic_compare_swap, __VA_ARGS__)
#define shmem_atomic_compare_swap_nbi(...) SHMEM_SELECT(SHMEM_AMO_TYPES, SHMEM_CASE, atomic_compare_swap_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_inc(...) SHMEM_SELECT(SHMEM_AMO_TYPES, SHMEM_CASE, atomic_fetch_inc, __VA_ARGS__)
#define shmem_atomic_fetch_inc_nbi(...) SHMEM_SELECT(SHMEM_AMO_TYPES, SHMEM_CASE, atomic_fetch_inc_nbi, __VA_ARGS__)
#define shmem_atomic_inc(...) SHMEM_SELECT(SHMEM_AMO_TYPES, SHMEM_CASE, atomic_inc, __VA_ARGS__)
#define shmem_atomic_fetch_add(...) SHMEM_SELECT(SHMEM_AMO_TYPES, SHMEM_CASE, atomic_fetch_add, __VA_ARGS__)
#define shmem_atomic_fetch_add_nbi(...) SHMEM_SELECT(SHMEM_AMO_TYPES, SHMEM_CASE, atomic_fetch_add_nbi, __VA_ARGS__)
#define shmem_atomic_add(...) SHMEM_SELECT(SHMEM_AMO_TYPES, SHMEM_CASE, atomic_add, __VA_ARGS__)
#define shmem_atomic_fetch_and(...) SHMEM_SELECT(SHMEM_BITWISE_AMO_TYPES, SHMEM_CASE, atomic_fetch_and, __VA_ARGS__)
#define shmem_atomic_fetch_and_nbi(...) SHMEM_SELECT(SHMEM_BITWISE_AMO_TYPES, SHMEM_CASE, atomic_fetch_and_nbi, __VA_ARGS__)
#define shmem_atomic_and(...) SHMEM_SELECT(SHMEM_BITWISE_AMO_TYPES, SHMEM_CASE, atomic_and, __VA_ARGS__)
#define shmem_atomic_fetch_or(...) SHMEM_SELECT(SHMEM_BITWISE_AMO_TYPES, SHMEM_CASE, atomic_fetch_or, __VA_ARGS__)
#define shmem_atomic_fetch_or_nbi(...) SHMEM_SELECT(SHMEM_BITWISE_AMO_TYPES, SHMEM_CASE, atomic_fetch_or_nbi, __VA_ARGS__)
#define shmem_atomic_or(...) SHMEM_SELECT(SHMEM_BITWISE_AMO_TYPES, SHMEM_CASE, atomic_or, __VA_ARGS__)
#define shmem_atomic_fetch_xor(...) SHMEM_SELECT(SHMEM_BITWISE_AMO_TYPES, SHMEM_CASE, atomic_fetch_xor, __VA_ARGS__)
#define shmem_atomic_fetch_xor_nbi(...) SHMEM_SELECT(SHMEM_BITWISE_AMO_TYPES, SHMEM_CASE, atomic_fetch_xor_nbi, __VA_ARGS__)
#define shmem_atomic_xor(...) SHMEM_SELECT(SHMEM_BITWISE_AMO_TYPES, SHMEM_CASE, atomic_xor, __VA_ARGS__)

#define SHMEM_SELECT_SET(FUNCTION, ...)                                                                                        \
    _Generic(SHMEM_FIRST(__VA_ARGS__, 0),                                                                                      \
        SHMEM_AMO_TYPES(SHMEM_CASE, FUNCTION) short *: shmemx_short_##FUNCTION,                                                \
        unsigned short *: shmemx_ushort_##FUNCTION, default: shmem_has_no_function_for_this_type)(__VA_ARGS__)
#define SHMEM_WAIT_TYPES(X, A) SHMEM_AMO_TYPES(X, A) X(A, short, short) X(A, ushort, unsigned short)
#define shmem_wait_until(...) SHMEM_SELECT_FIRST(SHMEM_WAIT_TYPES, wait_until, __VA_ARGS__)
#define shmem_test(...) SHMEM_SELECT_FIRST(SHMEM_WAIT_TYPES, test, __VA_ARGS__)
#define shmem_wait_until_all(...) SHMEM_SELECT_SET(wait_until_all, __VA_ARGS__)
#define shmem_wait_until_any(...) SHMEM_SELECT_SET(wait_until_any, __VA_ARGS__)
#define shmem_wait_until_some(...) SHMEM_SELECT_SET(wait_until_some, __VA_ARGS__)
#define shmem_wait_until_all_vector(...) SHMEM_SELECT_SET(wait_until_all_vector, __VA_ARGS__)
#define shmem_wait_until_any_vector(...) SHMEM_SELECT_SET(wait_until_any_vector, __VA_ARGS__)
#define shmem_wait_until_some_vector(...) SHMEM_SELECT_SET(wait_until_some_vector, __VA_ARGS__)
#define shmem_test_all(...) SHMEM_SELECT_SET(test_all, __VA_ARGS__)
#define shmem_test_any(...) SHMEM_SELECT_SET(test_any, __VA_ARGS__)
#define shmem_test_some(...) SHMEM_SELECT_SET(test_some, __VA_ARGS__)
#define shmem_test_all_vector(...) SHMEM_SELECT_SET(test_all_vector, __VA_ARGS__)
#define shmem_test_any_vector(...) SHMEM_SELECT_SET(test_any_vector, __VA_ARGS__)
#define shmem_test_some_vector(...) SHMEM_SELECT_SET(test_some_vector, __VA_ARGS__)

#define shmem_alltoall(...) SHMEM_SELECT_SECOND(SHMEM_RMA_TYPES, alltoall, __VA_ARGS__)
#define shmem_alltoalls(...) SHMEM_SELECT_SECOND(SHMEM_RMA_TYPES, alltoalls, __VA_ARGS__)
#define shmem_broadcast(...) SHMEM_SELECT_SECOND(SHMEM_RMA_TYPES, broadcast, __VA_ARGS__)
#define shmem_collect(...) SHMEM_SELECT_SECOND(SHMEM_RMA_TYPES, collect, __VA_ARGS__)
#define shmem_fcollect(...) SHMEM_SELECT_SECOND(SHMEM_RMA_TYPES, fcollect, __VA_ARGS__)
#define shmem_and_reduce(...) SHMEM_SELECT_SECOND(SHMEM_BITWISE_TYPES, and_reduce, __VA_ARGS__)
#define shmem_or_reduce(...) SHMEM_SELECT_SECOND(SHMEM_BITWISE_TYPES, or_reduce, __VA_ARGS__)
#define shmem_xor_reduce(...) SHMEM_SELECT_SECOND(SHMEM_BITWISE_TYPES, xor_reduce, __VA_ARGS__)
#define shmem_max_reduce(...) SHMEM_SELECT_SECOND(SHMEM_RMA_TYPES, max_reduce, __VA_ARGS__)
#define shmem_min_reduce(...) SHMEM_SELECT_SECOND(SHMEM_RMA_TYPES, min_reduce, __VA_ARGS__)
#define shmem_sum_reduce(...) SHMEM_SELECT_SECOND(SHMEM_SUM_TYPES, sum_reduce, __VA_ARGS__)
#define shmem_prod_reduce(...) SHMEM_SELECT_SECOND(SHMEM_SUM_TYPES, prod_reduce, __VA_ARGS__)
#define shmem_sum_inscan(...) SHMEM_SELECT_SECOND(SHMEM_SUM_TYPES, sum_inscan, __VA_ARGS__)
#define shmem_sum_exscan(...) SHMEM_SELECT_SECOND(SHMEM_SUM_TYPES, sum_exscan, __VA_ARGS__)

/* A team, or an active set. */
#define shmem_sync(...)                                                                                                        \
    _Generic(SHMEM_FIRST(__VA_ARGS__, 0), shmem_team_t: shmem_team_sync, default: shmem_sync)(__VA_ARGS__)

/* Deprecated. */
#define shmem_wait(...) SHMEM_SELECT_FIRST(SHMEM_OLD_BITWISE_TYPES, wait, __VA_ARGS__)
#define shmem_cswap(...) SHMEM_SELECT_FIRST(SHMEM_OLD_AMO_TYPES, cswap, __VA_ARGS__)
#define shmem_finc(...) SHMEM_SELECT_FIRST(SHMEM_OLD_AMO_TYPES, finc, __VA_ARGS__)
#define shmem_inc(...) SHMEM_SELECT_FIRST(SHMEM_OLD_AMO_TYPES, inc, __VA_ARGS__)
#define shmem_fadd(...) SHMEM_SELECT_FIRST(SHMEM_OLD_AMO_TYPES, fadd, __VA_ARGS__)
#define shmem_add(...) SHMEM_SELECT_FIRST(SHMEM_OLD_AMO_TYPES, add, __VA_ARGS__)
#define shmem_swap(...) SHMEM_SELECT_FIRST(SHMEM_OLD_EXTENDED_TYPES, swap, __VA_ARGS__)
#define shmem_set(...) SHMEM_SELECT_FIRST(SHMEM_OLD_EXTENDED_TYPES, set, __VA_ARGS__)
#define shmem_fetch(...)                                                                                                       \
    _Generic(SHMEM_FIRST(__VA_ARGS__, 0),                                                                                      \
        SHMEM_OLD_EXTENDED_TYPES(SHMEM_CASE_CONST, fetch) default: shmem_has_no_function_for_this_type)(__VA_ARGS__)

#endif

#endif
