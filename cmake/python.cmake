# The Python package headroom_torch: src/python and the rooms below it in one library. It exports nothing (its operators
# register themselves when it is loaded) and needs only torch, the C++ runtime, and SentencePiece, libpng and libjpeg, which
# are packaged as shared libraries only: wheels for distribution bundle them (python/wheel/make.py). build/<preset>/python
# is the package as in a wheel, for PYTHONPATH.
set(HEADROOM_PACKAGE "${CMAKE_BINARY_DIR}/python/headroom_torch")

headroom_map_room(python yes "layers, models, checkpoints and sharded training as torch operators, from which the package in `python/headroom_torch/` is made" train)
file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/python/*.cc")
add_library(headroom_python OBJECT ${sources} src/cli/engine/distributed.cc src/cli/engine/train.cc)
target_link_libraries(headroom_python PRIVATE headroom_train)
target_compile_options(headroom_python PRIVATE ${headroom_light_flags})
headroom_precompiled(headroom_python headroom_torch_pch)
headroom_unity(headroom_python)

add_library(headroom_torch MODULE python/bundled/highway.cc python/bundled/tomlplusplus.cc
            $<TARGET_OBJECTS:headroom_core> $<TARGET_OBJECTS:headroom_config> $<TARGET_OBJECTS:headroom_kernels>
            $<TARGET_OBJECTS:headroom_ops> $<TARGET_OBJECTS:headroom_nn> $<TARGET_OBJECTS:headroom_models>
            $<TARGET_OBJECTS:headroom_tokenizers> $<TARGET_OBJECTS:headroom_store> $<TARGET_OBJECTS:headroom_data>
            $<TARGET_OBJECTS:headroom_decode> $<TARGET_OBJECTS:headroom_parallel> $<TARGET_OBJECTS:headroom_cost>
            $<TARGET_OBJECTS:headroom_tasks> $<TARGET_OBJECTS:headroom_train> $<TARGET_OBJECTS:headroom_python>)
target_link_libraries(headroom_torch PRIVATE headroom_build)
target_compile_features(headroom_torch PRIVATE cxx_std_20)
set_source_files_properties(python/bundled/tomlplusplus.cc PROPERTIES COMPILE_OPTIONS "${headroom_light_flags}")
find_library(HEADROOM_STATIC_CRYPTO libcrypto.a REQUIRED)
find_library(HEADROOM_STATIC_ZLIB libz.a REQUIRED)
find_library(HEADROOM_STATIC_ZSTD libzstd.a REQUIRED)
find_library(HEADROOM_STATIC_UTF8PROC libutf8proc.a REQUIRED)
# libtorch_cpu loads the OpenMP runtime that provides these functions.
target_link_libraries(headroom_torch PRIVATE ${HEADROOM_STATIC_CRYPTO} ${HEADROOM_STATIC_ZLIB} ${HEADROOM_STATIC_ZSTD} ${HEADROOM_STATIC_UTF8PROC}
                      sentencepiece::sentencepiece PNG::PNG JPEG::JPEG "${HEADROOM_TORCH_DIR}/lib/libtorch_cpu.so" "${HEADROOM_TORCH_DIR}/lib/libc10.so" ${CMAKE_DL_LIBS})
target_link_options(headroom_torch PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/python/bundled/exports.map
                    -Wl,--gc-sections -Wl,-s)
set_target_properties(headroom_torch PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${HEADROOM_PACKAGE}" SKIP_BUILD_RPATH ON
                      LINK_DEPENDS "${CMAKE_SOURCE_DIR}/python/bundled/exports.map")

set(HEADROOM_PACKAGE_VERSION "${PROJECT_VERSION}")
if(SKBUILD_PROJECT_VERSION_FULL)
  set(HEADROOM_PACKAGE_VERSION "${SKBUILD_PROJECT_VERSION_FULL}")  # which may end with +torch2.12
endif()
configure_file(python/headroom_torch/_version.py.in "${HEADROOM_PACKAGE}/_version.py" @ONLY)
file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/python/headroom_torch/*.py")
add_custom_target(headroom_torch_package ALL
                  COMMAND ${CMAKE_COMMAND} -E copy_if_different ${sources} "${HEADROOM_PACKAGE}"
                  COMMAND ${CMAKE_COMMAND} -E create_symlink "${CMAKE_SOURCE_DIR}/recipes" "${HEADROOM_PACKAGE}/recipes"
                  VERBATIM)
add_dependencies(headroom_torch_package headroom_torch)

# The files that pip installs; scikit-build-core adds the package's own files.
install(TARGETS headroom_torch LIBRARY DESTINATION headroom_torch COMPONENT python EXCLUDE_FROM_ALL)
install(FILES "${HEADROOM_PACKAGE}/_version.py" DESTINATION headroom_torch COMPONENT python EXCLUDE_FROM_ALL)
install(DIRECTORY recipes DESTINATION headroom_torch COMPONENT python EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.toml")
