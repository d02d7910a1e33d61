// Small matrix products in the first-level cache: what the LPE's feed-forward maps and attention are made of.
//
// Lanes are tokens or nodes, in groups of 16: an array x[c][t] of `width` features holds lane t of feature c at
// token_at(width, t) + c * 16. Rows r[q][t] are kTokenPiece floats apart. What keeps these fast, measured on Ice Lake: tiles of
// 4 x TV sums, because a load of a vector costs as much as two multiplications; inner loops that are NOT unrolled, because
// straight code of a few hundred instructions is bound by decoding. K = width known to the compiler, 0 = any.

// Where token t (position * 16 + lane) of feature 0 stands in an array of `width` features; feature c is c * 16 further on.
SAN_INLINE int64_t token_at(int width, int64_t t) { return t / kLanes * kLanes * width + t % kLanes; }

// Floats from one vector of tokens to the next: the next position, or the other lanes of the same one.
#if SAN_VL == 16
#define SAN_NEXT(v) ((v) * k * kLanes)
#elif SAN_VL == 8
#define SAN_NEXT(v) ((v) / 2 * k * kLanes + (v) % 2 * VL)  // groups start at an even vector
#else
#define SAN_NEXT(v) ((v) * VL)  // groups of at most two vectors, which start at an even one
#endif

// w[q][c] = at[q * row + c * column]
struct RowMatrix {
  const float* at;
  int64_t row, column;
};

// a[q][t] = begin(q) + sum_c w[q][c] * x[c][t] for TV vectors of lanes; end(q, a) uses rows q .. q + 3. The last of `rows` is
// repeated up to a multiple of 4.
template <int K, int TV, class Begin, class End>
SAN_INLINE void products(const RowMatrix w, int rows, int width, const float* __restrict x, const Begin& begin, const End& end) {
  const int k = K > 0 ? K : width;
  for (int row = 0; row < rows; row += 4) {
    const int last = rows - 1 - row;
    const float *w0 = w.at + row * w.row, *w1 = w0 + (last < 1 ? last : 1) * w.row, *w2 = w0 + (last < 2 ? last : 2) * w.row,
                *w3 = w0 + (last < 3 ? last : 3) * w.row;
    V a[4][TV];
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
#pragma GCC unroll 8
      for (int v = 0; v < TV; ++v) a[q][v] = begin(row + q);
    }
    int64_t at = 0;
#pragma GCC unroll 1
    for (int c = 0; c < k; ++c, at += w.column) {
      const V u0 = splat(w0[at]), u1 = splat(w1[at]), u2 = splat(w2[at]), u3 = splat(w3[at]);
#pragma GCC unroll 8
      for (int v = 0; v < TV; ++v) {
        const V xv = load(x + c * kLanes + SAN_NEXT(v));
        a[0][v] += xv * u0;
        a[1][v] += xv * u1;
        a[2][v] += xv * u2;
        a[3][v] += xv * u3;
      }
    }
    end(row, a);
  }
}

// Calls work.operator()<C>(column) for tiles of at most kMost columns that cover k: 6 is better cut 3 + 3 than 4 + 2.
template <int kMost, class Work>
SAN_INLINE void column_tiles(int k, const Work& work) {
  for (int column = 0; column < k;) {
    const int left = k - column, take = left <= kMost ? left : left < 2 * kMost ? (left + 1) / 2 : kMost;
    switch (take) {
      case 6:
        if constexpr (kMost >= 6) work.template operator()<6>(column);
        break;
      case 4:
        if constexpr (kMost >= 4) work.template operator()<4>(column);
        break;
      case 3:
        if constexpr (kMost >= 3) work.template operator()<3>(column);
        break;
      case 2:
        work.template operator()<2>(column);
        break;
      default:
        work.template operator()<1>(column);
    }
    column += take;
  }
}

// y[c][t] (+)= sum over q < rows of w[q][c] * from[q][t].
template <int K, int TV>
SAN_ALONE void from_rows(const RowMatrix m, int rows, int width, const float* __restrict from, float* __restrict y,
                         bool first) {
  const int k = K > 0 ? K : width;
  // At least 8 sums, or a multiplication waits for the one before.
  column_tiles<VL == 8 && K == 6 && TV <= 2 ? 6 : 4>(k, [&]<int C>(int column) {
    const float* w = m.at + column * m.column;
    float* to = y + column * kLanes;
    V sum[C][TV];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
#pragma GCC unroll 8
      for (int v = 0; v < TV; ++v) sum[c][v] = first ? V{} : load(to + c * kLanes + SAN_NEXT(v));
    }
#pragma GCC unroll 1
    for (int q = 0; q < rows; ++q, w += m.row) {
      V g[TV];
#pragma GCC unroll 8
      for (int v = 0; v < TV; ++v) g[v] = load(from + q * kTokenPiece + v * VL);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const V u = splat(w[c * m.column]);
#pragma GCC unroll 8
        for (int v = 0; v < TV; ++v) sum[c][v] += g[v] * u;
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
#pragma GCC unroll 8
      for (int v = 0; v < TV; ++v) store(to + c * kLanes + SAN_NEXT(v), sum[c][v]);
    }
  });
}

// Calls work.operator()<TV>(t) for groups of vectors that cover `count` tokens, t = a group's first.
template <class Work>
SAN_INLINE void token_groups(int64_t count, const Work& work) {
  int64_t t = 0;
  [[maybe_unused]] constexpr int64_t kMost = VL == 16 ? 5 : 2;
  while (t < count) {
    const int64_t left = (count - t) / VL;
#if SAN_VL == 16
    const int64_t groups = (left + kMost - 1) / kMost, take = (left + groups - 1) / groups;  // 6 = 3 + 3, not 5 + 1
#elif SAN_VL == 8
    const int64_t take = left == 3 ? 3 : left < kMost ? left : kMost;  // a single one would have too few sums
#else
    const int64_t take = left < kMost ? left : kMost;
#endif
    switch (take) {
#if SAN_VL == 16
      case 5:
        work.template operator()<5>(t);
        break;
      case 4:
        work.template operator()<4>(t);
        break;
#endif
#if SAN_VL >= 8
      case 3:
        work.template operator()<3>(t);
        break;
#endif
      case 2:
        work.template operator()<2>(t);
        break;
      default:
        work.template operator()<1>(t);
    }
    t += take * VL;
  }
}

// Lane sums of VL vectors as one vector: lane i of the result is the sum of acc[i]'s lanes.
SAN_INLINE V sums_of(V* acc) {
#ifdef __clang__
  V out{};
  for (int i = 0; i < VL; ++i) out[i] = sum_of(acc[i]);
  return out;
#else
#pragma GCC unroll 5
  for (int w = VL / 2; w >= 1; w /= 2) {
    VI low{}, high{};
#pragma GCC unroll 16
    for (int l = 0; l < VL; ++l) {
      const int group = l / (2 * w) * 2 * w, at = l % (2 * w);
      low[l] = at < w ? group + at : VL + group + at - w;
      high[l] = at < w ? group + w + at : VL + group + at;
    }
#pragma GCC unroll 16
    for (int i = 0; i < w; ++i) {
      acc[i] = __builtin_shuffle(acc[i], acc[i + w], low) + __builtin_shuffle(acc[i], acc[i + w], high);
    }
  }
  return acc[0];
#endif
}

// outer_lanes in tiles of kMost columns, H vectors of lanes at a time.
template <int K, int kMost, int H>
SAN_INLINE void outer_tiles(const float* __restrict from, int rows, const float* __restrict x, int width, int64_t first,
                            int64_t count, float* __restrict acc, bool start) {
  constexpr int R = 4;
  const int k = K > 0 ? K : width;
  for (int row = 0; row < rows; row += R) {
    column_tiles<kMost>(k, [&]<int C>(int column) {
      V sum[R][C];
      float* to = acc + (row * k + column) * VL;
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sum[r][c] = start ? V{} : load(to + (r * k + c) * VL);
      }
      const float *a = from + row * kTokenPiece, *b = x + token_at(k, first) + column * kLanes;
      const auto multiply = [&]<int N>(int lane) {
        V xv[C][N];
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
#pragma GCC unroll 2
          for (int i = 0; i < N; ++i) xv[c][i] = in_register(load(b + c * kLanes + lane + i * VL));
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          V y[N];
#pragma GCC unroll 2
          for (int i = 0; i < N; ++i) y[i] = in_register(load(a + r * kTokenPiece + lane + i * VL));
#pragma GCC unroll 2
          for (int i = 0; i < N; ++i) {
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) sum[r][c] += y[i] * xv[c][i];
          }
        }
      };
      int64_t t = 0;
#pragma GCC unroll 1
      for (; t + kLanes <= count; t += kLanes, a += kLanes, b += k * kLanes) {
#pragma GCC unroll 4
        for (int lane = 0; lane < kLanes; lane += H * VL) multiply.template operator()<H>(lane);
      }
      for (int lane = 0; t + lane < count; lane += VL) multiply.template operator()<1>(lane);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) store(to + (r * k + c) * VL, sum[r][c]);
      }
    });
  }
}

// acc[q][c] (+)= from[q][t] * x[c][t] lane by lane, for `rows` rows (a multiple of 4) and lanes first .. first + count of x
// (first: a multiple of 16); row q's lane 0 is x's lane `first`. acc holds rows of `width` vectors; sums over their lanes are left
// for later.
template <int K>
SAN_ALONE void outer_lanes(const float* __restrict from, int rows, const float* __restrict x, int width, int64_t first,
                           int64_t count, float* __restrict acc, bool start) {
#if SAN_VL == 16
  outer_tiles<K, 4, 1>(from, rows, x, width, first, count, acc, start);
#elif SAN_VL == 8
  // Two loads in a cycle from the same half of two cache lines are in each other's way (Zen 3: a third slower), so that halves take
  // turns. It takes registers from the sums; where lanes are few, what is done once per tile weighs more.
  if (count >= 64) return outer_tiles<K, 2, 2>(from, rows, x, width, first, count, acc, start);
  outer_tiles<K, 3, 1>(from, rows, x, width, first, count, acc, start);
#else
  outer_tiles<K, 3, 1>(from, rows, x, width, first, count, acc, start);
#endif
}

// out[i] (+)= scale * the sum of the lanes of vector i, for `count` vectors.
template <bool kAdd>
static void lane_sums(const float* acc, int64_t count, float scale, float* out) {
  for (; count >= VL; count -= VL, acc += VL * VL, out += VL) {
    V v[VL];
#pragma GCC unroll 16
    for (int q = 0; q < VL; ++q) v[q] = load(acc + q * VL);
    const V sums = sums_of(v) * scale;
    store(out, kAdd ? load(out) + sums : sums);
  }
  for (; count > 0; --count, acc += VL, ++out) *out = (kAdd ? *out : 0.0F) + scale * sum_of(load(acc));
}
