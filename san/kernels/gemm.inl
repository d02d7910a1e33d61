// Matrix products: tiles of MV vectors x NR rows of C stay in registers while p runs.

template <int MV, int NR>
static void gemm_tile(const float* __restrict a, int64_t lda, const float* __restrict b, int64_t b_row, int64_t b_depth,
                      int64_t depth, float* __restrict c, int64_t ldc, int64_t columns, bool accumulate) {
  V acc[NR][MV];
  const int64_t last = columns - (MV - 1) * VL;  // columns of the last vector
  const bool partial = last < VL;
#pragma GCC unroll 16
  for (int r = 0; r < NR; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < MV; ++v) {
      const float* from = c + r * ldc + v * VL;
      acc[r][v] = !accumulate ? V{} : v + 1 == MV && partial ? load_some(from, last) : load(from);
    }
  }
  for (int64_t p = 0; p < depth; ++p) {
    V row[MV];
#pragma GCC unroll 8
    for (int v = 0; v < MV; ++v) row[v] = load(a + v * VL);
#pragma GCC unroll 16
    for (int r = 0; r < NR; ++r) {
      const V x = splat(b[r * b_row]);
#pragma GCC unroll 8
      for (int v = 0; v < MV; ++v) acc[r][v] += row[v] * x;
    }
    a += lda;
    b += b_depth;
  }
#pragma GCC unroll 16
  for (int r = 0; r < NR; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < MV; ++v) {
      float* to = c + r * ldc + v * VL;
      if (v + 1 == MV && partial) {
        store_some(to, acc[r][v], last);
      } else {
        store(to, acc[r][v]);
      }
    }
  }
}

template <int MV, int NR>
static void gemm_rows(const Gemm& g, int64_t column, int64_t columns, int64_t depth_begin, int64_t depth, bool accumulate) {
  const float* a = g.a + depth_begin * g.lda + column;
  const float* b = g.b + depth_begin * g.b_depth;
  int64_t r = 0;
  for (; r + NR <= g.rows; r += NR) {
    gemm_tile<MV, NR>(a, g.lda, b + r * g.b_row, g.b_row, g.b_depth, depth, g.c + r * g.ldc + column, g.ldc, columns,
                      accumulate);
  }
  if constexpr (NR >= 4) {
    for (; r + 2 <= g.rows; r += 2) {
      gemm_tile<MV, 2>(a, g.lda, b + r * g.b_row, g.b_row, g.b_depth, depth, g.c + r * g.ldc + column, g.ldc, columns,
                       accumulate);
    }
  }
  for (; r < g.rows; ++r) {
    gemm_tile<MV, 1>(a, g.lda, b + r * g.b_row, g.b_row, g.b_depth, depth, g.c + r * g.ldc + column, g.ldc, columns,
                     accumulate);
  }
}

static void gemm(const Gemm& g) {
  constexpr int64_t kDepth = 320;  // rows of A that stay in the cache
  if (g.depth == 0) {
    for (int64_t r = 0; r < g.rows && !g.accumulate; ++r) {
      for (int64_t j = 0; j < g.columns; ++j) g.c[r * g.ldc + j] = 0;
    }
    return;
  }
  for (int64_t p = 0; p < g.depth; p += kDepth) {
    const int64_t depth = g.depth - p < kDepth ? g.depth - p : kDepth;
    const bool accumulate = g.accumulate || p > 0;
    for (int64_t column = 0; column < g.columns;) {
      const int64_t left = g.columns - column, vectors = (left + VL - 1) / VL;
      // Wide tiles; the last two share what is left evenly.
#if SAN_VL == 16
      constexpr int kWide = 4;
#else
      constexpr int kWide = 2;
#endif
      int64_t take = vectors <= kWide ? vectors : vectors < 2 * kWide ? (vectors + 1) / 2 : kWide;
      const int64_t columns = left < take * VL ? left : take * VL;
      switch (take) {
#if SAN_VL == 16
        case 4:
          gemm_rows<4, 6>(g, column, columns, p, depth, accumulate);
          break;
        case 3:
          gemm_rows<3, 8>(g, column, columns, p, depth, accumulate);
          break;
        case 2:
          gemm_rows<2, 8>(g, column, columns, p, depth, accumulate);
          break;
        default:
          gemm_rows<1, 8>(g, column, columns, p, depth, accumulate);
#else
        case 2:
          gemm_rows<2, 4>(g, column, columns, p, depth, accumulate);
          break;
        default:
          gemm_rows<1, 4>(g, column, columns, p, depth, accumulate);
#endif
      }
      column += columns;
    }
  }
}
