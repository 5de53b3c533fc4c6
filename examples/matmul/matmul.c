/* c = a * b for row-major n x n matrices of floats, on one thread, by the blocking of GotoBLAS.
 *
 * Three ideas, one inside the other, each with its own knobs (set with -D):
 *
 *   VEC, NV, MR  A tile of c, MR rows by NV vectors of VEC floats, stays in registers while k runs.
 *                A multiply-add takes several cycles, so only many independent ones keep the units
 *                busy; with too many accumulators, some spill to memory.
 *   MC, KC, NC   Blocks of rows of c, of k, and of columns of c. A sliver of b, KC deep and a tile
 *                wide, should stay in L1, an MC x KC block of a in L2, a KC x NC block of b in L2
 *                or L3.
 *   PACK         1 copies the blocks of a and b into the order in which tiles read them. Without
 *                the strides there are fewer pages to look up and no conflicts for the same few
 *                cache sets; large blocks earn the copy back. 0 reads a and b in place.
 */
#include <string.h>

#ifndef VEC
#define VEC 4
#endif
#ifndef NV
#define NV 1
#endif
#ifndef MR
#define MR 4
#endif
#ifndef MC
#define MC 64
#endif
#ifndef KC
#define KC 64
#endif
#ifndef NC
#define NC 64
#endif
#ifndef PACK
#define PACK 0
#endif

#if VEC != 4 && VEC != 8 && VEC != 16
#error "VEC must be 4, 8 or 16"
#endif
#if MR < 1 || NV < 1 || KC < 1 || MC < MR || NC < NV * VEC
#error "a block must hold at least one tile: MC >= MR >= 1, NC >= NV * VEC >= VEC, KC >= 1"
#endif

#define MIN(x, y) ((x) < (y) ? (x) : (y))

/* The widest vectors of the machine. Compilers do poorly with wider ones (GCC falls back to single
 * floats), so a wider VEC is made up of several of these. */
#if defined(__AVX512F__)
#define WIDEST 16
#elif defined(__AVX__)
#define WIDEST 8
#else
#define WIDEST 4
#endif

/* ROWS and COLS cut the blocks to whole tiles: ragged ones then occur at the edges of c only. */
enum {
    NR = NV * VEC,
    LANES = MIN(VEC, WIDEST),
    VECTORS = NR / LANES,
    ROWS = MC / MR * MR,
    COLS = NC / NR * NR,
};

/* Rows of the matrices start anywhere, hence the alignment of a single float. */
typedef float vec
    __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

/* The loops over a tile must vanish, or its accumulators become an array in memory. */
#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 64")
#endif

/* c[MR][NR] += a[MR][depth] * b[depth][NR], with element (i, k) of a at a[i * a_row + k * a_col].
 * Always inlined, so that strides that are constants at the call are constants here. */
static inline __attribute__((always_inline)) void tile(int depth, const float *a, long a_row,
                                                       long a_col, const float *b, long b_row,
                                                       float *c, long c_row)
{
    vec acc[MR][VECTORS];
    UNROLLED for (int i = 0; i < MR; i++)
        UNROLLED for (int v = 0; v < VECTORS; v++)
            acc[i][v] = *(const vec *)(c + i * c_row + v * LANES);
    for (int k = 0; k < depth; k++, a += a_col, b += b_row)
        UNROLLED for (int i = 0; i < MR; i++)
            UNROLLED for (int v = 0; v < VECTORS; v++)
                acc[i][v] += a[i * a_row] * *(const vec *)(b + v * LANES);
    UNROLLED for (int i = 0; i < MR; i++)
        UNROLLED for (int v = 0; v < VECTORS; v++)
            *(vec *)(c + i * c_row + v * LANES) = acc[i][v];
}

/* The same where c ends in the middle of a tile. */
static void edge(int rows, int cols, int depth, const float *a, long a_row, long a_col,
                 const float *b, long b_row, float *c, long c_row)
{
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < depth; k++)
            for (int j = 0; j < cols; j++)
                c[i * c_row + j] += a[i * a_row + k * a_col] * b[k * b_row + j];
}

static float packed_a[ROWS * KC] __attribute__((aligned(64)));
static float packed_b[KC * COLS] __attribute__((aligned(64)));

/* Slivers of MR rows, each stored column by column. */
static const float *pack_a(int rows, int depth, const float *a, long a_row)
{
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < depth; k++)
            packed_a[i / MR * MR * depth + k * MR + i % MR] = a[i * a_row + k];
    return packed_a;
}

/* Slivers of NR columns, each stored row by row. */
static const float *pack_b(int cols, int depth, const float *b, long b_row)
{
    for (int j = 0; j < cols; j += NR)
        for (int k = 0; k < depth; k++)
            memcpy(packed_b + j * depth + k * NR, b + k * b_row + j,
                   sizeof(float) * MIN(NR, cols - j));
    return packed_b;
}

/* One block of c, tile by tile. Rows run innermost: they all share one sliver of b, kept in L1. */
static void block(int rows, int cols, int depth, const float *a, const float *b, float *c, long n)
{
    const long a_sliver = PACK ? depth : n, a_row = PACK ? 1 : n, a_col = PACK ? MR : 1;
    const long b_sliver = PACK ? depth : 1, b_row = PACK ? NR : n;
    for (int j = 0; j < cols; j += NR)
        for (int i = 0; i < rows; i += MR) {
            const float *ai = a + i * a_sliver, *bj = b + j * b_sliver;
            float *cij = c + i * n + j;
            if (rows - i >= MR && cols - j >= NR)
                tile(depth, ai, a_row, a_col, bj, b_row, cij, n);
            else
                edge(MIN(MR, rows - i), MIN(NR, cols - j), depth, ai, a_row, a_col, bj, b_row, cij,
                     n);
        }
}

void matmul(const float *a, const float *b, float *c, int n)
{
    const long row = n;
    memset(c, 0, sizeof(float) * row * row);
    for (int j = 0; j < n; j += COLS)
        for (int k = 0; k < n; k += KC) {
            const int cols = MIN(COLS, n - j), depth = MIN(KC, n - k);
            const float *b_kj = b + k * row + j;
            if (PACK)
                b_kj = pack_b(cols, depth, b_kj, row);
            for (int i = 0; i < n; i += ROWS) {
                const int rows = MIN(ROWS, n - i);
                const float *a_ik = a + i * row + k;
                if (PACK)
                    a_ik = pack_a(rows, depth, a_ik, row);
                block(rows, cols, depth, a_ik, b_kj, c + i * row + j, row);
            }
        }
}
