/* Predictions of a trained Spectral Attention Network, for C and everything that can call C.
 *
 *   san_model* model = san_load("runs/logs/model");
 *   const char* smiles[] = {"CCO", "c1ccccc1"};
 *   double values[2];
 *   if (model == NULL || san_predict_smiles(model, smiles, 2, 0, 1, values, 2) < 0) puts(san_last_error());
 *   san_free(model);
 *
 * Link with -lsan_c (pkg-config san_c, CMake san::c). Needs no libtorch, no Python, no GPU.
 *
 * Errors. Functions return NULL or -1; san_last_error() then says in one line what is wrong. No exception ever leaves the
 * library, which never prints and never ends the process.
 * Threads. A san_model is immutable: any number of threads may use one at the same time, none waits for another. Only
 * san_free() must come after all the others.
 * Results do not depend on the number of threads or on what is predicted together with what, not in a single bit.
 * Memory. Results go into arrays of the caller's; inputs are read during the call and not kept.
 * Stability. Functions, flags and the members of san_graph keep their meaning; new members of san_graph come at its end,
 * which is why it carries its size. */
#ifndef SAN_CAPI_SAN_H_
#define SAN_CAPI_SAN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SAN_API __attribute__((visibility("default")))
#else
#define SAN_API
#endif

typedef struct san_model san_model;

/* "0.1.0" */
SAN_API const char* san_version(void);

/* What went wrong in this thread's last failed call; "" when none has failed. Valid until the thread's next failed call. */
SAN_API const char* san_last_error(void);

/* A model folder (config.json + model.safetensors), as `san train` and `san import` write it. NULL: see san_last_error(). */
SAN_API san_model* san_load(const char* folder);
/* NULL is allowed. */
SAN_API void san_free(san_model* model);

/* "regression", "binary", "multiclass" or "node-classification". Valid as long as the model. */
SAN_API const char* san_task(const san_model* model);
/* Numbers per row of predictions. */
SAN_API int san_outputs(const san_model* model);
/* What output i is called: a target, a class, or y0, y1, ...; NULL when there is none. Valid as long as the model. */
SAN_API const char* san_output_name(const san_model* model, int i);
/* Numbers per row of embeddings. */
SAN_API int san_embedding_width(const san_model* model);
/* 1: predictions have a row per node; 0: a row per graph. */
SAN_API int san_is_node_task(const san_model* model);
/* 1: the model takes SMILES. 0: it was not trained on molecules, or the library was built without RDKit. */
SAN_API int san_takes_smiles(const san_model* model);

/* Flags, added up. */
#define SAN_RAW 1   /* predictions: the head's own outputs (logits, unscaled) instead of label units or probabilities */
#define SAN_NODES 2 /* embeddings: a row per node, also for models of whole graphs */

/* A graph. Set all of it to 0 and `size` to sizeof(san_graph) first:  san_graph graph = SAN_GRAPH_INIT; */
typedef struct san_graph {
  size_t size; /* sizeof(san_graph); the same in all graphs of a call */
  int32_t num_nodes;
  int64_t num_edges;
  const int32_t* edges; /* [num_edges][2]: source, target. An undirected graph lists both directions */
  /* Features, row-major, a row per node or edge. 0 columns and NULL: there are none. */
  int32_t node_category_columns;
  const int32_t* node_categories;
  int32_t node_value_columns;
  const float* node_values;
  int32_t edge_category_columns;
  const int32_t* edge_categories;
  int32_t edge_value_columns;
  const float* edge_values;
  /* Eigenpairs of the Laplacian that are used as they are. 0 and NULL (the usual case): they are computed. */
  int32_t num_pairs;
  const float* eigenvalues;  /* [num_pairs] */
  const float* eigenvectors; /* [num_nodes][num_pairs] */
} san_graph;
#define SAN_GRAPH_INIT \
  { sizeof(san_graph), 0, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, NULL }

/* All of these: `threads` is how many cores one call may use, 0 = all; 1 is right when the caller has threads of its own.
 * `values` has room for `capacity` numbers; rows are written one after the other, in the order of the input. They return the
 * number of rows written, or -1: then see san_last_error(). */

/* san_outputs() numbers per row; a row per graph, or per node for node tasks. */
SAN_API int64_t san_predict_graphs(const san_model* model, const san_graph* graphs, int64_t count, int flags,
                                   int threads, double* values, int64_t capacity);
/* The same for molecules. A SMILES that cannot be used has a row of NaN, and san_last_error() says why (of the first such
 * one); that is not a failure. Not for node tasks. */
SAN_API int64_t san_predict_smiles(const san_model* model, const char* const* smiles, int64_t count, int flags,
                                   int threads, double* values, int64_t capacity);
/* san_embedding_width() numbers per row: what the network knows before its head. */
SAN_API int64_t san_embed_graphs(const san_model* model, const san_graph* graphs, int64_t count, int flags, int threads,
                                 double* values, int64_t capacity);
/* Not with SAN_NODES. NaN as above. */
SAN_API int64_t san_embed_smiles(const san_model* model, const char* const* smiles, int64_t count, int flags,
                                 int threads, double* values, int64_t capacity);

#ifdef __cplusplus
}
#endif

#endif /* SAN_CAPI_SAN_H_ */
