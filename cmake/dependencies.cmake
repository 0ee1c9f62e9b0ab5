# Everything that Headroom takes from elsewhere. torch comes from the Python environment in .env/,
# the rest from the system's packages.
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(CLI11 REQUIRED)

# torch by its files rather than by its CMake package, which asks for a whole CUDA toolkit where torch has CUDA, even
# for code that only calls torch.
if(NOT DEFINED HEADROOM_PYTHON)
  set(HEADROOM_PYTHON "${CMAKE_SOURCE_DIR}/.env/bin/python3" CACHE FILEPATH "Python with torch installed")
endif()
execute_process(
  COMMAND "${HEADROOM_PYTHON}" -c
          "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE HEADROOM_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE torch_status ERROR_QUIET)
if(torch_status)
  message(FATAL_ERROR "torch: not found by ${HEADROOM_PYTHON}; './run.sh setup' installs it, "
                      "or set HEADROOM_PYTHON to a Python that has it")
endif()
file(STRINGS "${HEADROOM_TORCH_DIR}/version.py" HEADROOM_TORCH_VERSION REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = '([^']*)'.*" "\\1" HEADROOM_TORCH_VERSION "${HEADROOM_TORCH_VERSION}")
message(STATUS "torch ${HEADROOM_TORCH_VERSION}: ${HEADROOM_TORCH_DIR}")
if(HEADROOM_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "torch: must be 2.11 or later, got ${HEADROOM_TORCH_VERSION} in ${HEADROOM_TORCH_DIR}")
endif()

# libtorch.so holds no code but draws in the libraries of every device that torch was built for.
add_library(headroom_torch INTERFACE)
target_include_directories(headroom_torch SYSTEM INTERFACE
                           "${HEADROOM_TORCH_DIR}/include" "${HEADROOM_TORCH_DIR}/include/torch/csrc/api/include")
target_link_libraries(headroom_torch INTERFACE
                      "-Wl,--no-as-needed" "${HEADROOM_TORCH_DIR}/lib/libtorch.so" "-Wl,--as-needed"
                      "${HEADROOM_TORCH_DIR}/lib/libtorch_cpu.so" "${HEADROOM_TORCH_DIR}/lib/libc10.so")

# at::parallel_for is a template: compiled without OpenMP it runs on one thread and says nothing. The runtime must be the
# one that torch itself loads, which its wheel brings along.
find_package(OpenMP REQUIRED COMPONENTS CXX)
file(GLOB torch_openmp "${HEADROOM_TORCH_DIR}/lib/libgomp*.so*" "${HEADROOM_TORCH_DIR}/lib/libiomp5*.so*"
     "${HEADROOM_TORCH_DIR}/../torch.libs/libgomp*.so*")
if(torch_openmp)
  list(GET torch_openmp 0 torch_openmp)
else()
  set(torch_openmp OpenMP::OpenMP_CXX)
endif()
target_compile_options(headroom_torch INTERFACE ${OpenMP_CXX_FLAGS})
target_link_libraries(headroom_torch INTERFACE ${torch_openmp})

# The fmt inside torch's include folder, header-only: it would shadow the system's anyway.
add_library(headroom_fmt INTERFACE)
add_library(fmt::headroom ALIAS headroom_fmt)
target_compile_definitions(headroom_fmt INTERFACE FMT_HEADER_ONLY)
target_include_directories(headroom_fmt SYSTEM INTERFACE "${HEADROOM_TORCH_DIR}/include")

find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train REQUIRED)
add_library(sentencepiece_imported INTERFACE)
add_library(sentencepiece::sentencepiece ALIAS sentencepiece_imported)
target_link_libraries(sentencepiece_imported INTERFACE ${SENTENCEPIECE_LIBRARY} ${SENTENCEPIECE_TRAIN_LIBRARY})

find_library(HIGHWAY_LIBRARY hwy REQUIRED)
add_library(highway INTERFACE)
target_link_libraries(highway INTERFACE ${HIGHWAY_LIBRARY})

if(HEADROOM_TESTS)
  find_package(GTest REQUIRED)
  enable_testing()
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()
