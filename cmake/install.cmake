# What `cmake --install` and `cpack -G DEB` put where, in three components:
#   runtime      bin/san, libsan_c.so
#   development  libsan.a, headers, CMake package, pkg-config files
#   train        bin/san-torch, libsan_train.a, its headers (only when built with libtorch)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# san_headers(VAR a.h ...): the headers and all of ours that they include.
function(san_headers result)
  set(found "")
  set(todo ${ARGN})
  while(todo)
    list(POP_FRONT todo header)
    if(header IN_LIST found)
      continue()
    endif()
    list(APPEND found ${header})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} lines REGEX "^#include \"san/")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" other ${line})
      list(APPEND todo ${other})
    endforeach()
  endwhile()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

function(san_install_headers component)
  foreach(header IN LISTS ARGN)
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder} COMPONENT ${component})
  endforeach()
endfunction()

# One archive of everything that needs no libtorch: a stranger links libsan.a and what is not ours.
set(rooms base kernels graph spectral data model)
if(SAN_WITH_RDKIT)
  list(APPEND rooms chem)
endif()
list(TRANSFORM rooms REPLACE "(.+)" "$<TARGET_OBJECTS:san_\\1>" OUTPUT_VARIABLE objects)
add_library(san_library STATIC ${objects})
set_target_properties(san_library PROPERTIES OUTPUT_NAME san EXPORT_NAME san LINKER_LANGUAGE CXX
                      ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
target_compile_features(san_library INTERFACE cxx_std_20)
target_include_directories(san_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(san_library PUBLIC fmt::fmt PRIVATE ZLIB::ZLIB Threads::Threads)
if(SAN_WITH_RDKIT)
  target_link_libraries(san_library PRIVATE RDKit::RDKit)
endif()

san_headers(public san/model/predictor.h san/graph/graph.h san/graph/jsonl.h)
san_install_headers(development ${public})
install(FILES ${PROJECT_SOURCE_DIR}/capi/san.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(TARGETS san RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(TARGETS san_library EXPORT san ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(TARGETS san_c EXPORT san
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/san)
install(EXPORT san FILE sanTargets.cmake NAMESPACE san:: DESTINATION ${package} COMPONENT development)
if(SAN_WITH_TORCH)
  foreach(room nn train run_config report)
    list(APPEND train_objects $<TARGET_OBJECTS:san_${room}>)
  endforeach()
  add_library(san_train_library STATIC ${train_objects})
  set_target_properties(san_train_library PROPERTIES OUTPUT_NAME san_train EXPORT_NAME train LINKER_LANGUAGE CXX
                        ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  # Named, not linked: sanConfig.cmake finds the consumer's own libtorch.
  target_link_libraries(san_train_library PUBLIC san_library INTERFACE $<INSTALL_INTERFACE:torch>)
  san_headers(train san/train/trainer.h)
  list(REMOVE_ITEM train ${public})
  san_install_headers(train ${train})
  install(TARGETS san-torch RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT train)
  install(TARGETS san_train_library EXPORT san_train ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT train)
  install(EXPORT san_train FILE sanTrainTargets.cmake NAMESPACE san:: DESTINATION ${package} COMPONENT train)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/sanConfig.cmake.in ${PROJECT_BINARY_DIR}/sanConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/sanConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/sanConfig.cmake ${PROJECT_BINARY_DIR}/sanConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindRDKit.cmake
        DESTINATION ${package} COMPONENT development)

# pkg-config: the prefix is where the file lies, so that an unpacked tree works wherever it is put.
file(RELATIVE_PATH SAN_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(SAN_PC_PRIVATE "-lz -lpthread -lstdc++")
if(SAN_WITH_RDKIT)
  foreach(library IN LISTS RDKit_LIBRARIES)
    get_filename_component(name ${library} NAME_WE)
    string(REGEX REPLACE "^lib" "-l" name ${name})
    string(APPEND SAN_PC_PRIVATE " ${name}")
  endforeach()
endif()
foreach(name san san_c)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endforeach()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime RENAME copyright)
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT development)

# The Debian package: everything in one, dependencies read from the programs.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME san)
set(CPACK_PACKAGE_CONTACT "san developers <san@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libfmt-dev, zlib1g-dev, librdkit-dev, libtorch-dev")
include(CPack)
