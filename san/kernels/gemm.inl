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
  const auto tile = [&]<int R>() {
    gemm_tile<MV, R>(a, g.lda, b + r * g.b_row, g.b_row, g.b_depth, depth, g.c + r * g.ldc + column, g.ldc, columns, accumulate);
    r += R;
  };
  // A tile of few rows takes as long as one of half of NR: rather two tiles of about the same size.
  const int64_t left = g.rows % NR, whole = left > 0 && left <= NR / 2 && g.rows > NR ? g.rows - left - NR : g.rows - left;
  while (r < whole) tile.template operator()<NR>();
  while (r < g.rows) {
    const int64_t rows = g.rows - r;
    switch (rows >= NR ? (rows + 1) / 2 : rows) {
      case 7:
        if constexpr (NR > 7) tile.template operator()<7>();
        break;
      case 6:
        if constexpr (NR > 6) tile.template operator()<6>();
        break;
      case 5:
        if constexpr (NR > 5) tile.template operator()<5>();
        break;
      case 4:
        if constexpr (NR > 4) tile.template operator()<4>();
        break;
      case 3:
        tile.template operator()<3>();
        break;
      case 2:
        tile.template operator()<2>();
        break;
      default:
        tile.template operator()<1>();
    }
  }
}

static void gemm(const Gemm& g) {
  // Rows of A that stay in the first-level cache, beside B's where those are not contiguous (gradients of weights).
  const int64_t most = g.b_depth == 1 ? 320 : 128;
  if (g.depth == 0) {
    for (int64_t r = 0; r < g.rows && !g.accumulate; ++r) {
      for (int64_t j = 0; j < g.columns; ++j) g.c[r * g.ldc + j] = 0;
    }
    return;
  }
  for (int64_t p = 0; p < g.depth; p += most) {
    const int64_t depth = g.depth - p < most ? g.depth - p : most;
    const bool accumulate = g.accumulate || p > 0;
    for (int64_t column = 0; column < g.columns;) {
      const int64_t left = g.columns - column, vectors = (left + VL - 1) / VL;
#if SAN_VL == 16
      // Wide tiles; the last two share what is left evenly.
      constexpr int kWide = 4;
      const int64_t take = vectors <= kWide ? vectors : vectors < 2 * kWide ? (vectors + 1) / 2 : kWide;
#else
      // 16 registers: 12 sums, which hide a multiplication's latency of 4 cycles. An odd number ends in one tile of 3.
      const int64_t take = vectors == 3 ? 3 : vectors == 1 ? 1 : 2;
#endif
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
        case 3:
          gemm_rows<3, 4>(g, column, columns, p, depth, accumulate);
          break;
        case 2:
          gemm_rows<2, 6>(g, column, columns, p, depth, accumulate);
          break;
        default:
          gemm_rows<1, 8>(g, column, columns, p, depth, accumulate);
#endif
      }
      column += columns;
    }
  }
}
