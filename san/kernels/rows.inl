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

static void drop(float* x, int64_t rows, int64_t d, const Dropout& dropout, int64_t first_row) {
  if (!dropout.active()) return;
  for (int64_t r = 0; r < rows; ++r) {
    const uint32_t bits = mask_row(dropout.key, static_cast<uint32_t>(first_row + r));
    for (int64_t c = 0; c < d; ++c) {
      const auto column = static_cast<uint32_t>(c);
      const uint32_t number = mask_number(bits, mask_column(dropout.key, column / 2), (column & 1) != 0);
      x[r * d + c] = number < dropout.threshold ? 0.0F : x[r * d + c] * dropout.scale;
    }
  }
}

static void bias_relu(float* __restrict x, int64_t rows, int64_t d, const float* __restrict bias, const Dropout& dropout,
                      int64_t first_row) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < d; ++c) {
      const float v = x[r * d + c] + bias[c];
      x[r * d + c] = v > 0 ? v : 0;
    }
  }
  drop(x, rows, d, dropout, first_row);
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
