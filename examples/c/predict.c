/* Predictions for SMILES given on the command line, and for a graph made by hand: predict_c MODEL SMILES... */
#include <san.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(void) {
  fprintf(stderr, "%s\n", san_last_error());
  return 1;
}

int main(int argc, char** argv) {
  san_model* model;
  double* values;
  int64_t count = argc - 2;
  int outputs, i, c;
  if (argc < 2) {
    fprintf(stderr, "usage: %s MODEL SMILES...\n", argv[0]);
    return 2;
  }
  model = san_load(argv[1]);
  if (model == NULL) return failed();
  outputs = san_outputs(model);
  values = malloc(sizeof(double) * (size_t)((count + 1) * outputs));
  if (san_takes_smiles(model) && count > 0) {
    if (san_predict_smiles(model, (const char* const*)argv + 2, count, 0, 1, values, count * outputs) < 0) {
      return failed();
    }
    for (i = 0; i < count; ++i) {
      printf("%s", argv[i + 2]);
      for (c = 0; c < outputs; ++c) printf(" %s=%.9g", san_output_name(model, c), values[i * outputs + c]);
      printf("\n");
    }
  }
  {
    /* A triangle of nodes of category 0 with edges of category 1. */
    const int32_t edges[] = {0, 1, 1, 0, 1, 2, 2, 1, 2, 0, 0, 2};
    san_graph triangle = SAN_GRAPH_INIT;
    triangle.num_nodes = 3;
    triangle.num_edges = 6;
    triangle.edges = edges;
    if (san_predict_graphs(model, &triangle, 1, 0, 1, values, outputs) < 0) return failed();
    printf("triangle %.9g\n", values[0]);
  }
  free(values);
  san_free(model);
  return 0;
}
