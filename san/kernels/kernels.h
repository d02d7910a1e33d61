// The arithmetic of the network, fused, on raw memory: forward and backward. One table of functions per CPU level.
//
// All functions are pure: they write only what their contract names, allocate nothing, and may run on many threads at
// once on different outputs. Matrices are rows of floats unless said otherwise; [a][b] means b contiguous. `_pad` marks
// memory that is read, not used, up to 16 floats beyond its end. The same sources are compiled once per level (level_*.cc);
// the network composed of plain torch operations (nn/san_model.h) is the definition that all of them are tested against.
#pragma once

#include <cstdint>

#include "san/kernels/cpu.h"
#include "san/kernels/random_mask.h"

namespace san {

inline constexpr int kLanes = 16;  // sequences (LPE) or nodes (attention) that are worked on side by side
inline constexpr int kMaxLpeWidth = 256;
inline constexpr int kPad = 16;  // floats that may be read beyond the end of an operand
// The LPE's feed-forward maps: hidden units and tokens that are worked on together.
inline constexpr int kHiddenStep = 32, kTokenPiece = 320;

// --- matrix products -------------------------------------------------------------------------------------------------

// C[r][j] = (accumulate ? C[r][j] : 0) + sum_p B[r * b_row + p * b_depth] * A[p * lda + j]
// for r < rows, j < columns, p < depth. A_pad.
//   Y = X W^T:    A = W transposed [in][out],  B = X (b_row = in, b_depth = 1)
//   dX = dY W:    A = W [out][in],             B = dY
//   dW = dY^T X:  A = X [n][in],               B = dY (b_row = 1, b_depth = out)
// The sum over p runs in order for every element, so results do not depend on rows or columns.
struct Gemm {
  int64_t rows, columns, depth;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t b_row, b_depth;
  float* c;
  int64_t ldc;
  bool accumulate;
};

// --- the LPE encoder -------------------------------------------------------------------------------------------------

// Tokens come in blocks of kLanes sequences of m positions. An array "[k][T]" of a block holds k features of T = 16 m tokens
// as [position][feature][lane]: distances between features are known to the compiler, whatever m is. Per-token numbers
// "[T]" are [position][lane]. Lanes beyond the last sequence are zeros with count 0.
struct LpeShape {
  int k = 0, heads = 0, m = 0;
  int ff = 0;         // hidden units
  int ff_padded = 0;  // rounded up to a multiple of kHiddenStep: rows of packed feed-forward weights, the rest zeros
  int tokens() const { return m * kLanes; }
  // Floats of a token of a group, see LpeGroupForward.
  int64_t row() const { return (k + kLanes - 1) / kLanes * kLanes; }
};

struct LpeLayer {
  const float *in_weight, *in_bias;    // [3k][k], [3k]
  const float *out_weight, *out_bias;  // [k][k], [k]
  const float *norm1_weight, *norm1_bias, *norm2_weight, *norm2_bias;
  const float *ff1, *ff1_bias;  // [ff_padded][k], [ff_padded]
  const float *ff2, *ff2_bias;  // [ff_padded][k] (transposed: per hidden unit), [k]
  // For groups only: ff1 transposed [k][ff_padded]; the lengths of its rows [ff_padded], not a number where they are not finite.
  const float *ff1_columns, *ff1_norms;
  // In order of use. Rows are tokens (sequence * m + position); columns: key position + m * head (attention), features,
  // hidden units, features.
  Dropout attention, output, hidden, feed_forward;
  const uint32_t* hidden_bits;  // [ff_padded / 2] = mask_column(hidden.key, .)
};

// What the forward pass of one layer leaves for the backward pass, per block.
struct LpeSaved {
  float* x;             // [k][T], the layer's input
  float *hat1, *rstd1;  // [k][T], [T]: normalised values and 1 / deviation of the first norm
  float *hat2, *rstd2;  // of the second
};

// Floats that the functions below need as scratch, for so many blocks at a time.
int64_t lpe_scratch(const LpeShape& shape, int64_t blocks = 1);

struct LpeBlock {
  const LpeShape* shape;
  const LpeLayer* layer;
  uint32_t first_sequence;  // number of lane 0's sequence in the batch: dropout's rows
  const int32_t* counts;    // [16] valid positions per lane
  float* scratch;
};

// The feed-forward maps of a training step for kGroup tokens, from anywhere in the batch, that are alike: most hidden units are then 0 for all of
// them, or at work for all of them, and need not be computed one by one (lpe_groups.inl).
inline constexpr int kGroup = 64, kGroupUnits = 48;  // tokens, hidden units that are computed together
struct LpeGroupForward {
  const LpeShape* shape;
  const LpeLayer* layer;
  int count;             // tokens, at least 1; what stands for the others is a copy of one of them
  const uint32_t* rows;  // [kGroup] dropout's rows
  const float* x;        // [kGroup][row()], zeros beyond k
  float* xt;             // sets [k][kGroup]: the same, transposed
  float* y;              // sets [kGroup][row()]: the sums over hidden units, neither scaled (dropout) nor with a bias
  // Sets [ff_padded / 32]: units at work that are computed one by one, and those that are one linear map, being at work for all
  // of the tokens; bit 0 is the first of 32.
  uint32_t *some, *all;
  float* linear;   // sets [k][k] (in, out): the linear map, without dropout and biases. _pad
  float* scratch;  // lpe_group_scratch floats
};
// Backwards, for hidden units [begin, end) (multiples of 32).
struct LpeGroupBackward {
  const LpeShape* shape;
  const LpeLayer* layer;
  int count;
  const uint32_t* rows;
  const float *x, *xt;           // as above
  const float *dy, *dyt;         // [kGroup][row()], [k][kGroup]: gradients of y, scaled; zeros beyond count and k
  const float *outer, *outer_t;  // [k][k] (out, in) and (in, out): the sum over tokens of dy * x. _pad
  const float* sums;             // [row()]: the sum over tokens of dy, zeros beyond k
  const uint32_t *some, *all;
  int begin, end;
  float* d_x;                         // sets [kGroup][row()]: without the part of `linear`
  float *d_ff1, *d_ff1_bias, *d_ff2;  // adds; whole arrays
  float* scratch;
};
int64_t lpe_group_scratch(const LpeShape& shape);

// Gradients of everything in a layer but the feed-forward maps, laid out one after the other.
struct LpeSmallGradients {
  // in_weight 3k*k, in_bias 3k, out_weight k*k, out_bias k, norm1 weight k, bias k, norm2 weight k, bias k, ff2_bias k
  static int64_t size(int k) { return int64_t{4} * k * k + int64_t{9} * k; }
};

// The second norm and residual, backwards: d_out [k][T] -> d_sum (gradient of x1 + feed-forward), in place; d_ff [k][T] =
// d_sum after dropout; x1 [k][T] = input of the feed-forward block. Adds to `gradients`.
struct LpeNormBackward {
  LpeBlock block;
  LpeSaved saved;
  float *d_out, *d_ff, *x1;
  float* gradients;
};

// The feed-forward maps' backward pass for hidden units [begin, end) (multiples of kHiddenStep) over `blocks` blocks that lie one
// after the other: recomputes the hidden units, writes d_x [blocks][k][T], adds to the weights' gradients.
struct LpeFeedForwardBackward {
  const LpeShape* shape;
  const LpeLayer* layer;
  int64_t blocks;
  uint32_t first_sequence;
  int begin, end;
  const float *x1, *d_ff;  // [blocks][k][T]
  float* d_x;
  float *d_ff1, *d_ff1_bias, *d_ff2;  // as in LpeLayer, whole arrays
  float* scratch;
};

// The rest of a layer, backwards: d [k][T] in: gradient of x1, out: gradient of the layer's input.
struct LpeAttentionBackward {
  LpeBlock block;
  LpeSaved saved;
  float* d;
  float* gradients;
};

// --- attention of the graph Transformer ------------------------------------------------------------------------------

// Projections lie in rows of `ld` floats per node: q1, k1, [q2, k2,] v at their offsets, each d wide, feature c of head h
// at c * heads + h. A node's pairs are explicit (real edges: index lists) or, for added pairs that share one edge vector,
// implicit: all other nodes of the graph.
struct AttentionShape {
  int d = 0, heads = 0;
  int64_t ld = 0;
  int q1 = 0, k1 = 0, q2 = 0, k2 = 0, v = 0;  // offsets
  float real_weight = 1, added_weight = 0;    // 1 / (1 + gamma), gamma / (1 + gamma)
  bool separate = false;                      // each kind its own softmax
  int head_width() const { return d / heads; }
};

// Pairs of one node with others of its graph, of one kind.
struct PairList {
  int64_t count = 0;
  const int32_t* other = nullptr;  // node number in the batch
  const float* e = nullptr;  // edge vectors, scaled by 1 / sqrt(width), rows of d: of pair p row e_row[p], or row p
  const int32_t* e_row = nullptr;
};

// For node i as target: adds to num [d], z [heads] the sums of weight * v and weight.
struct PairsForward {
  const AttentionShape* shape;
  const float* projections;
  int64_t node;
  bool real;  // q1, k1 and real_weight, or q2, k2 and added_weight
  PairList pairs;
  float *num, *z;
};

// What backward needs to know per node and head: out = share * (sum of w v), d_w = share * (d_out . v - dot).
struct PairsBackward {
  const AttentionShape* shape;
  const float* projections;
  const float* d_out;        // [N][d]
  const float *share, *dot;  // [N][heads] of this kind
  int64_t node;
  bool real;
  PairList pairs;
  float* d_projections;  // rows like projections: adds to the node's q (as target), or k and v (as source)
  float* d_e;            // as target: adds to the rows of the edge vectors' gradient, like PairList::e; else null
};

// All pairs of the nodes of a graph, for some of the heads: added pairs, which share one edge vector, and, where the graph's
// real edges are many and all of one type, those too (scaled_q1 is not null; joint norm only).
inline constexpr float kLog2E = 1.44269504F;
inline constexpr int kDenseRows = 32;  // nodes whose pairs with all others are worked on together
struct DenseGraph {
  const AttentionShape* shape;
  const float* projections;           // _pad
  const float *e, *e1;                // [d] edge vectors of added pairs and of real edges, scaled
  const float *scaled_q, *scaled_q1;  // [N][d], _pad: q2 * e * log2(e), q1 * e1 * log2(e)
  int64_t begin, end;                 // the nodes of the graph
  int head_begin, head_end;
  // Real edges, which are no added pairs: of node i other[pair_begin[i]] .. other[pair_begin[i + 1] - 1]. Forward: the
  // targets of source i; backward: the sources of target i.
  const int64_t* pair_begin;
  const int32_t* other;
  float* scratch;  // dense_scratch floats
  // forward: sets num [N][d] and z [N][heads] of its nodes and heads
  float *num, *z;
  // backward: sets d_projections of its nodes and heads (q1 and k1 too: to zero where it has no real edges), adds to d_e and
  // d_e1 [d]
  const float *d_out, *share, *dot;
  float* d_projections;
  float *d_e, *d_e1;

  int64_t padded() const { return (end - begin + kLanes - 1) / kLanes * kLanes; }
};
int64_t dense_scratch(const AttentionShape& shape, int64_t nodes, int heads);

// --- rows ------------------------------------------------------------------------------------------------------------

struct Kernels {
  void (*gemm)(const Gemm&);

  // x [k][T] -> the layer's output, in place. `saved` may be null.
  void (*lpe_forward)(const LpeBlock&, float* x, const LpeSaved* saved);
  // The same in parts: x [k][T] -> x1, in place, what comes before the feed-forward maps; x1 and their result y -> the layer's
  // output in place of x1. y is overwritten.
  void (*lpe_attend)(const LpeBlock&, float* x, const LpeSaved& saved);
  void (*lpe_finish)(const LpeBlock&, float* x, float* y, const LpeSaved& saved);
  void (*lpe_group_forward)(const LpeGroupForward&);
  void (*lpe_group_backward)(const LpeGroupBackward&);
  void (*lpe_norm_backward)(const LpeNormBackward&);
  void (*lpe_feed_forward_backward)(const LpeFeedForwardBackward&);
  void (*lpe_attention_backward)(const LpeAttentionBackward&);
  // Y[o][t] = bias[o] + sum_i W[o][i] X[i][t]; X [in][T], Y [out][T]; T a multiple of 16.
  void (*lpe_linear)(const float* w, const float* bias, const float* x, float* y, int in, int out, int64_t tokens);
  // dW[o][i] += sum_t dY[o][t] X[i][t], db[o] += sum_t dY[o][t].
  void (*lpe_linear_gradient)(const float* dy, const float* x, float* dw, float* db, int in, int out, int64_t tokens);

  void (*pairs_forward)(const PairsForward&);
  void (*pairs_backward_target)(const PairsBackward&);
  void (*pairs_backward_source)(const PairsBackward&);
  void (*dense_forward)(const DenseGraph&);
  void (*dense_backward)(const DenseGraph&);

  // mean[c], m2[c]: mean and sum of squared deviations of column c over the rows.
  void (*column_moments)(const float* x, int64_t rows, int64_t d, int64_t ld, float* mean, float* m2);
  // y = x * scale[c] + shift[c]
  void (*affine)(const float* x, int64_t rows, int64_t d, const float* scale, const float* shift, float* y);
  // sum_dy[c] = sum dy, sum_dyx[c] = sum dy * (x - mean[c]) * rstd[c]
  void (*norm_sums)(const float* dy, const float* x, int64_t rows, int64_t d, const float* mean, const float* rstd,
                    float* sum_dy, float* sum_dyx);
  // dy = scale[c] * (dy - s1[c] - (x - mean[c]) * s2[c]), in place
  void (*norm_backward)(float* dy, const float* x, int64_t rows, int64_t d, const float* scale, const float* s1,
                        const float* mean, const float* s2);
  // LayerNorm of each row, in place: hat = (x - mean) * rstd, x = hat * weight[c] + bias[c]. hat [rows][d] and rstd [rows] are
  // kept for the way back, or null.
  void (*row_norm)(float* x, int64_t rows, int64_t d, const float* weight, const float* bias, float epsilon, float* hat,
                   float* rstd);
  // Backwards, in place: dy -> dx. Adds to d_weight and d_bias [d].
  void (*row_norm_backward)(float* dy, int64_t rows, int64_t d, const float* weight, const float* hat,
                            const float* rstd, float* d_weight, float* d_bias);
  // y[r][c] = x[r * ld + c] * scale[c] * factor
  void (*scale_rows)(const float* x, int64_t rows, int64_t d, int64_t ld, const float* scale, float factor, float* y);
  // out[r][h] = sum over the features f of head h of a[r][f] * b[r][f], features in attention's order.
  void (*head_dots)(const float* a, const float* b, int64_t rows, int d, int heads, float* out);
  // x *= dropout's factor of (first_row + r, c)
  void (*drop)(float* x, int64_t rows, int64_t d, const Dropout& dropout, int64_t first_row);
  // x = max(x + bias, 0), then dropped
  void (*bias_relu)(float* x, int64_t rows, int64_t d, const float* bias, const Dropout& dropout, int64_t first_row);
  // d = 0 where y is 0, times the dropout's scale elsewhere (y > 0 was kept)
  void (*relu_backward)(float* d, const float* y, int64_t count, float scale);
  // x += bias[c] (+ residual)
  void (*bias_residual)(float* x, int64_t rows, int64_t d, const float* bias, const float* residual);
  // One step of Adam; see train/optimiser.h for the meaning.
  void (*adam)(float* p, const float* g, float* m, float* v, int64_t count, float beta1, float beta2, float rate,
               float root, float epsilon, float decay, float keep);
};

// Of the current level. Safe from any thread.
const Kernels& kernels();
const Kernels& kernels(CpuLevel level);

}  // namespace san
