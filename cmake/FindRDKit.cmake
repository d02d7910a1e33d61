# Finds RDKit's C++ libraries where its own CMake package is absent, as in Debian's librdkit-dev.
#
#   find_package(RDKit [version] [REQUIRED])
#
# Target RDKit::RDKit: the headers (as system headers), Boost's headers that they include, and the libraries
# that chem/ uses. Variables: RDKit_FOUND, RDKit_VERSION. Hints: RDKIT_ROOT, as for every find module
# (RDKit_ROOT), or CMAKE_PREFIX_PATH.
find_path(RDKit_INCLUDE_DIR GraphMol/SmilesParse/SmilesParse.h PATH_SUFFIXES rdkit HINTS ${RDKIT_ROOT})
# RDKit's headers include Boost's, but librdkit-dev does not depend on libboost-dev.
find_path(RDKit_BOOST_INCLUDE_DIR boost/dynamic_bitset.hpp)

set(RDKit_LIBRARIES "")
set(rdkit_library_variables "")
foreach(name IN ITEMS MolDraw2D ChemTransforms SmilesParse GraphMol RDGeometryLib RDGeneral)
  find_library(RDKit_${name}_LIBRARY RDKit${name} HINTS ${RDKIT_ROOT})
  list(APPEND RDKit_LIBRARIES ${RDKit_${name}_LIBRARY})
  list(APPEND rdkit_library_variables RDKit_${name}_LIBRARY)
endforeach()

# versions.h of Debian's package is an unexpanded template: the library's file name knows.
if(RDKit_RDGeneral_LIBRARY)
  file(REAL_PATH ${RDKit_RDGeneral_LIBRARY} rdkit_real_path)
  if(rdkit_real_path MATCHES "\\.so\\.1\\.(20[0-9][0-9]\\.[0-9]+\\.[0-9]+)")
    set(RDKit_VERSION ${CMAKE_MATCH_1})
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RDKit
  REQUIRED_VARS RDKit_INCLUDE_DIR RDKit_BOOST_INCLUDE_DIR ${rdkit_library_variables}
  VERSION_VAR RDKit_VERSION)
mark_as_advanced(RDKit_INCLUDE_DIR RDKit_BOOST_INCLUDE_DIR ${rdkit_library_variables})

if(RDKit_FOUND AND NOT TARGET RDKit::RDKit)
  add_library(RDKit::RDKit INTERFACE IMPORTED)
  set_target_properties(RDKit::RDKit PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${RDKit_INCLUDE_DIR};${RDKit_BOOST_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${RDKit_LIBRARIES}")
endif()
