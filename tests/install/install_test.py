#!/usr/bin/env python3
"""Installs san into a throw-away folder and uses it as a stranger would.

install_test.py install BUILD SOURCE MAKE_MODEL   builds both examples with CMake and with pkg-config, runs them, compares them
                                                  with the program `san`
install_test.py package BUILD                     makes the Debian packages and unpacks them
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(c) for c in command)}\n{done.stdout}\nfailed with {done.returncode}")
    return done.stdout


def check(condition, message):
    if not condition:
        sys.exit(message)


def test_install(build, source, make_model, folder):
    prefix = folder / "prefix"
    train = (build / "lib/libsan_train.a").exists() and (build / "bin/san-torch").exists()
    for component in ["runtime", "development"] + (["train"] if train else []):
        run("cmake", "--install", build, "--prefix", prefix, "--component", component)
    headers = {str(p.relative_to(prefix / "include")) for p in (prefix / "include").rglob("*.h")}
    for wanted in ("san.h", "san/model/predictor.h", "san/graph/graph.h", "san/base/error.h"):
        check(wanted in headers, f"{wanted} is not installed")
    check(not any("kernels/" in h for h in headers), "internal headers are installed")

    model = folder / "model"
    run(make_model, model)
    smiles = ["CCO", "c1ccccc1O"]
    run("cmake", "-S", source / "examples", "-B", folder / "examples", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder / "examples")
    env = dict(os.environ, PKG_CONFIG_PATH=":".join(str(p) for p in prefix.rglob("pkgconfig")))
    answers = {}
    for name, compiler, package, file in (("predict_cpp", "c++", "san", "cpp/predict.cc"), ("predict_c", "cc", "san_c", "c/predict.c")):
        answers[f"{name} with CMake"] = run(folder / "examples" / name, model, *smiles)
        flags = run("pkg-config", "--cflags", "--libs", package, env=env).split()
        libraries = [f"-Wl,-rpath,{f[2:]}" for f in flags if f.startswith("-L")]
        run(compiler, "-Wall", "-Wextra", "-Werror", source / "examples" / file, *flags, *libraries, "-o", folder / name)
        answers[f"{name} with pkg-config"] = run(folder / name, model, *smiles)
        check("torch" not in run("ldd", folder / name), f"{name} needs libtorch")
    first = next(iter(answers.values()))
    for name, answer in answers.items():
        check(answer == first, f"{name} says\n{answer}\nothers say\n{first}")
    check("triangle" in first, first)

    # The installed program gives the same numbers.
    if "CCO" in first:
        (folder / "m.csv").write_text("smiles\n" + "\n".join(smiles) + "\n")
        table = run(prefix / "bin/san", "predict", "--model", model, "--data", folder / "m.csv").split()
        for row, line in zip(table[1:], first.splitlines()):
            check(row.split(",")[1] == line.split("=")[1], f"{row} and {line}")
    # C compilers take the header by itself, in the oldest dialect it is written for.
    (folder / "h.c").write_text("#include <san.h>\nint main(void) { return san_version()[0] == 0; }\n")
    run("cc", "-std=c99", "-pedantic", "-Werror", "-Wall", "-Wextra", f"-I{prefix}/include", "-fsyntax-only", folder / "h.c")

    if train:
        consumer = folder / "train"
        consumer.mkdir()
        (consumer / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(t LANGUAGES C CXX)\nfind_package(san REQUIRED COMPONENTS train)\n"
            "add_executable(t t.cc)\ntarget_link_libraries(t PRIVATE san::train)\n")
        (consumer / "t.cc").write_text(
            '#include "san/train/trainer.h"\n'
            "int main() { try { san::evaluate({}, san::Dataset::from_graphs({}), {}, 1); } catch (const san::Error&) {} }\n")
        run("cmake", "-S", consumer, "-B", consumer / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", consumer / "build")
    print(first, "installed headers:", *sorted(headers), sep="\n")


def test_package(build, folder):
    run("cpack", "-G", "DEB", "-B", folder, cwd=build)
    packages = {p.name.split("_")[0]: p for p in folder.glob("*.deb")}
    check(set(packages) <= {"san", "san-train"} and "san" in packages, f"packages: {packages}")
    listing = run("dpkg-deb", "-c", packages["san"])
    for wanted in ("./usr/bin/san\n", "san/model/predictor.h", "libsan.a", "libsan_c.so", "sanConfig.cmake", "san.pc"):
        check(wanted in listing, f"{wanted} is not in the package:\n{listing}")
    for package in packages.values():
        run("dpkg-deb", "-x", package, folder / "root")
        print(package.name, "depends on", run("dpkg-deb", "-f", package, "Depends"))
    version = run(folder / "root/usr/bin/san", "--version")
    check(re.match(r"san \d+\.\d+\.\d+", version), version)
    check("torch" not in run("dpkg-deb", "-f", packages["san"], "Depends"), "the package san depends on libtorch")
    if "san-train" in packages:
        check("./usr/bin/san-torch\n" in run("dpkg-deb", "-c", packages["san-train"]), "san-torch is not in san-train")
    print(listing)


def main():
    build = pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory(prefix="san_install_") as name:
        if sys.argv[1] == "install":
            test_install(build, pathlib.Path(sys.argv[3]).resolve(), sys.argv[4], pathlib.Path(name))
        else:
            test_package(build, pathlib.Path(name))


if __name__ == "__main__":
    main()
