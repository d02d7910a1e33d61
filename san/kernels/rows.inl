// Row-wise pieces between the matrix products. Plain loops: the compiler makes vectors of them.

static void column_moments(const float* __restrict x, int64_t rows, int64_t d, int64_t ld, float* __restrict mean,
                           float* __restrict m2) {
  for (int64_t c = 0; c < d; ++c) mean[c] = m2[c] = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < d; ++c) mean[c] += x[r * ld + c];
  }
  const float inverse = 1.0F / static_cast<float>(rows);
  for (int64_t c = 0; c < d; ++c) mean[c] *= inverse;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < d; ++c) {
      const float v = x[r * ld + c] - mean[c];
      m2[c] += v * v;
    }
  }
}

static void affine(const float* x, int64_t rows, int64_t d, const float* __restrict scale, const float* __restrict shift,
                   float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < d; ++c) y[r * d + c] = x[r * d + c] * scale[c] + shift[c];
  }
}

static void norm_sums(const float* __restrict dy, const float* __restrict x, int64_t rows, int64_t d,
                      const float* __restrict mean, const float* __restrict rstd, float* __restrict sum_dy,
                      float* __restrict sum_dyx) {
  for (int64_t c = 0; c < d; ++c) sum_dy[c] = sum_dyx[c] = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < d; ++c) {
      sum_dy[c] += dy[r * d + c];
      sum_dyx[c] += dy[r * d + c] * ((x[r * d + c] - mean[c]) * rstd[c]);
    }
  }
}

static void norm_backward(float* __restrict dy, const float* __restrict x, int64_t rows, int64_t d,
                          const float* __restrict scale, const float* __restrict s1, const float* __restrict mean,
                          const float* __restrict s2) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < d; ++c) dy[r * d + c] = scale[c] * (dy[r * d + c] - s1[c] - (x[r * d + c] - mean[c]) * s2[c]);
  }
}

// The sum of value(c, count) over a row's columns, `count` of them from c on at a time, added up in double: a BatchNorm that
// follows may multiply what is lost here by hundreds. Lanes beyond the count must be zero. Doubles go in vectors of half as many
// lanes: GCC keeps those in registers, and vectors wider than the machine's on the stack (LayerNorm then took three times as long).
typedef float VHalf __attribute__((vector_size(2 * SAN_VL)));
typedef double VDouble __attribute__((vector_size(4 * SAN_VL)));
#if SAN_VL == 16
SAN_INLINE VHalf lower_half(V v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7); }
SAN_INLINE VHalf upper_half(V v) { return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15); }
#elif SAN_VL == 8
SAN_INLINE VHalf lower_half(V v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3); }
SAN_INLINE VHalf upper_half(V v) { return __builtin_shufflevector(v, v, 4, 5, 6, 7); }
#else
SAN_INLINE VHalf lower_half(V v) { return __builtin_shufflevector(v, v, 0, 1); }
SAN_INLINE VHalf upper_half(V v) { return __builtin_shufflevector(v, v, 2, 3); }
#endif
template <class Value>
SAN_INLINE double row_sum(int64_t d, const Value& value) {
  VDouble lower{}, upper{};
  const auto add = [&](V v) {
    lower += __builtin_convertvector(lower_half(v), VDouble);
    upper += __builtin_convertvector(upper_half(v), VDouble);
  };
  int64_t c = 0;
  for (; c + VL <= d; c += VL) add(value(c, int64_t{VL}));
  if (c < d) add(value(c, d - c));
  const VDouble both = lower + upper;
  double total = 0;
  for (int i = 0; i < VL / 2; ++i) total += both[i];
  return total;
}
SAN_INLINE V load_up_to(const float* p, int64_t count) { return count == VL ? load(p) : load_some(p, count); }

static void row_norm(float* __restrict x, int64_t rows, int64_t d, const float* __restrict weight,
                     const float* __restrict bias, float epsilon, float* __restrict hat, float* __restrict rstd) {
  const double inverse = 1.0 / static_cast<double>(d);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = x + r * d;
    const auto mean = static_cast<float>(row_sum(d, [&](int64_t c, int64_t n) { return load_up_to(row + c, n); }) * inverse);
    const double variance = row_sum(d, [&](int64_t c, int64_t n) {
      const V centred = select((VI)(lane_numbers() < static_cast<uint32_t>(n)), load_up_to(row + c, n) - splat(mean));
      return centred * centred;
    }) * inverse;
    // 0 * infinity: a row whose squares overflow is not a number, instead of its bias.
    const auto scale = static_cast<float>(1.0 / __builtin_sqrt(variance + epsilon) + 0 * variance);
    if (rstd != nullptr) rstd[r] = scale;
    for (int64_t c = 0; c < d; ++c) {
      const float h = (row[c] - mean) * scale;
      if (hat != nullptr) hat[r * d + c] = h;
      row[c] = h * weight[c] + bias[c];
    }
  }
}

static void row_norm_backward(float* __restrict dy, int64_t rows, int64_t d, const float* __restrict weight,
                              const float* __restrict hat, const float* __restrict rstd, float* __restrict d_weight,
                              float* __restrict d_bias) {
  const double inverse = 1.0 / static_cast<double>(d);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = dy + r * d;
    const float* h = hat + r * d;
    const auto mean = static_cast<float>(inverse * row_sum(d, [&](int64_t c, int64_t n) {
      return load_up_to(row + c, n) * load_up_to(weight + c, n);
    }));
    const auto mean_hat = static_cast<float>(inverse * row_sum(d, [&](int64_t c, int64_t n) {
      return load_up_to(row + c, n) * load_up_to(weight + c, n) * load_up_to(h + c, n);
    }));
    for (int64_t c = 0; c < d; ++c) {
      d_weight[c] += row[c] * h[c];
      d_bias[c] += row[c];
      row[c] = rstd[r] * (row[c] * weight[c] - mean - h[c] * mean_hat);
    }
  }
}

static void scale_rows(const float* __restrict x, int64_t rows, int64_t d, int64_t ld, const float* __restrict scale,
                       float factor, float* __restrict y) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < d; ++c) y[r * d + c] = x[r * ld + c] * (scale[c] * factor);
  }
}

// Dropout of rows whose lanes are columns: the columns' bits are the same for every row.
struct ColumnMask {
  static constexpr int64_t kMost = 512;  // columns at a time
  uint32_t bits[kMost];
  VU shift;  // even columns decide by lower bits: see mask_number
  uint32_t threshold;
  void prepare(const Dropout& d, int64_t first, int64_t count) {  // first: even
    threshold = d.threshold << 16;
    for (int i = 0; i < VL; ++i) shift[i] = i % 2 == 0 ? 11 : 0;
    for (int64_t c = 0; c < count; c += VL) {
      store_u(bits + c, hash_vector(~d.key, (lane_numbers() + static_cast<uint32_t>(first + c)) >> 1));
    }
  }
  VI keep(VU row_bits, int64_t c) const {
    return (VI)((((row_bits ^ load_u(bits + c)) * kMaskMultiplier) << shift) >= threshold);
  }
};

// x = value(x, column), dropped.
template <class Value>
SAN_INLINE void drop_rows(float* x, int64_t rows, int64_t d, const Dropout& dropout, int64_t first_row, const Value& value) {
  ColumnMask mask;
  for (int64_t first = 0; first < d; first += ColumnMask::kMost) {
    const int64_t count = d - first < ColumnMask::kMost ? d - first : ColumnMask::kMost;
    mask.prepare(dropout, first, count);
    for (int64_t r = 0; r < rows; ++r) {
      const VU bits = splat_u(mask_row(dropout.key, static_cast<uint32_t>(first_row + r)));
      float* row = x + r * d + first;
      int64_t c = 0;
      for (; c + VL <= count; c += VL) {
        store(row + c, select(mask.keep(bits, c), value(load(row + c), first + c, VL) * dropout.scale));
      }
      if (c < count) {
        const int64_t left = count - c;
        store_some(row + c, select(mask.keep(bits, c), value(load_some(row + c, left), first + c, left) * dropout.scale), left);
      }
    }
  }
}

static void drop(float* x, int64_t rows, int64_t d, const Dropout& dropout, int64_t first_row) {
  if (!dropout.active()) return;
  drop_rows(x, rows, d, dropout, first_row, [](V v, int64_t, int64_t) { return v; });
}

static void bias_relu(float* __restrict x, int64_t rows, int64_t d, const float* __restrict bias, const Dropout& dropout,
                      int64_t first_row) {
  if (dropout.active()) {
    drop_rows(x, rows, d, dropout, first_row, [&](V v, int64_t c, int64_t count) {
      return maximum(V{}, v + (count == VL ? load(bias + c) : load_some(bias + c, count)));
    });
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < d; ++c) {
      const float v = x[r * d + c] + bias[c];
      x[r * d + c] = v < 0 ? 0 : v;
    }
  }
}

static void relu_backward(float* __restrict d, const float* __restrict y, int64_t count, float scale) {
  for (int64_t i = 0; i < count; ++i) d[i] = y[i] > 0 ? d[i] * scale : 0.0F;
}

static void bias_residual(float* __restrict x, int64_t rows, int64_t d, const float* __restrict bias,
                          const float* __restrict residual) {
  if (residual == nullptr) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < d; ++c) x[r * d + c] += bias[c];
    }
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < d; ++c) x[r * d + c] += bias[c] + residual[r * d + c];
  }
}

static void adam(float* __restrict p, const float* __restrict g, float* __restrict m, float* __restrict v, int64_t count,
                 float beta1, float beta2, float rate, float root, float epsilon, float decay, float keep) {
  const float rest1 = 1 - beta1, rest2 = 1 - beta2;
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] + decay * p[i];
    m[i] = beta1 * m[i] + rest1 * gradient;
    v[i] = beta2 * v[i] + rest2 * gradient * gradient;
    p[i] = keep * p[i] - rate * m[i] / (__builtin_sqrtf(v[i]) * root + epsilon);
  }
}
