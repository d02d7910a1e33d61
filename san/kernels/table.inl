// In the order of struct Kernels.
gemm, lpe_forward, lpe_attend, lpe_finish, lpe_group_forward, lpe_group_backward, lpe_norm_backward, lpe_feed_forward_backward, lpe_attention_backward, lpe_linear, lpe_linear_gradient,
    pairs_forward, pairs_backward_target, pairs_backward_source, all_pairs_forward, all_pairs_backward, column_moments, affine, norm_sums, norm_backward,
    row_norm, row_norm_backward, scale_rows, head_dots, drop, bias_relu, relu_backward, bias_residual,
    adam,
