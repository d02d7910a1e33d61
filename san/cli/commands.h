// The subcommands of `san`, one file each. Each parses its own flags (argv[0] is "san NAME"), does its work, prints to
// stdout and returns the exit code; errors are thrown as san::Error and printed by main.
#pragma once

namespace san::cli {

int run_data(int argc, char** argv);
int run_spectrum(int argc, char** argv);
int run_import(int argc, char** argv);
int run_predict(int argc, char** argv);
int run_train(int argc, char** argv);
int run_reproduce(int argc, char** argv);
int run_eval(int argc, char** argv);
int run_embed(int argc, char** argv);
int run_bench(int argc, char** argv);

}  // namespace san::cli
