# All external dependencies. torch comes from the Python environment in .env/, the others from the system's packages.
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(zstd REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)

# Uses torch's files directly instead of its CMake package, which requires a CUDA toolkit if torch was built with CUDA,
# even for code that only calls torch. For another CPU architecture, set HEADROOM_TORCH_DIR to the `torch` folder of an
# unpacked wheel.
if(NOT DEFINED HEADROOM_PYTHON AND SKBUILD)
  set(HEADROOM_PYTHON "${Python_EXECUTABLE}")  # the Python that pip builds for
elseif(NOT DEFINED HEADROOM_PYTHON)
  set(HEADROOM_PYTHON "${CMAKE_SOURCE_DIR}/.env/bin/python3" CACHE FILEPATH "Python with torch installed")
endif()
if(NOT DEFINED HEADROOM_TORCH_DIR)
  execute_process(
    COMMAND "${HEADROOM_PYTHON}" -c
            "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE HEADROOM_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE torch_status ERROR_QUIET)
  if(torch_status)
    message(FATAL_ERROR "torch: not found by ${HEADROOM_PYTHON}; './run.sh setup' installs it, "
                        "or set HEADROOM_PYTHON to a Python that has it")
  endif()
endif()
file(STRINGS "${HEADROOM_TORCH_DIR}/version.py" HEADROOM_TORCH_VERSION REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = '([^']*)'.*" "\\1" HEADROOM_TORCH_VERSION "${HEADROOM_TORCH_VERSION}")
message(STATUS "torch ${HEADROOM_TORCH_VERSION}: ${HEADROOM_TORCH_DIR}")
if(HEADROOM_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "torch: must be 2.11 or later, got ${HEADROOM_TORCH_VERSION} in ${HEADROOM_TORCH_DIR}")
endif()

include(cmake/torch.cmake)

# SentencePiece and torch's c10 both define FLAGS_minloglevel, of different types. The command is safe as long as it is
# linked with SentencePiece and loads torch later: each symbol is then SentencePiece's, which is the larger one, and c10
# only reads it (tests/end_to_end/test_command_line.py). A program that is linked with torch loads c10 first; Debian has
# no static SentencePiece whose symbols could be hidden, so only RTLD_DEEPBIND helps there
# (python/headroom_torch/_library.py).
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train REQUIRED)
add_library(sentencepiece::sentencepiece INTERFACE IMPORTED)
target_link_libraries(sentencepiece::sentencepiece INTERFACE ${SENTENCEPIECE_LIBRARY} ${SENTENCEPIECE_TRAIN_LIBRARY})
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
add_library(utf8proc::utf8proc INTERFACE IMPORTED)
target_link_libraries(utf8proc::utf8proc INTERFACE ${UTF8PROC_LIBRARY})

find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)
if(NOT HEADROOM_PACKAGE_ONLY)
  find_package(CLI11 REQUIRED)
  # On some systems cpp-httplib is a compiled library with TLS, and its headers must be compiled with the same options.
  # Elsewhere it is header-only.
  find_path(HTTPLIB_INCLUDE httplib.h REQUIRED)
  find_library(HTTPLIB_LIBRARY cpp-httplib)
  add_library(cpp-httplib::cpp-httplib INTERFACE IMPORTED)
  target_include_directories(cpp-httplib::cpp-httplib INTERFACE "${HTTPLIB_INCLUDE}")
  target_link_libraries(cpp-httplib::cpp-httplib INTERFACE Threads::Threads)
  if(HTTPLIB_LIBRARY)
    target_compile_definitions(cpp-httplib::cpp-httplib INTERFACE CPPHTTPLIB_OPENSSL_SUPPORT)
    target_link_libraries(cpp-httplib::cpp-httplib INTERFACE ${HTTPLIB_LIBRARY} OpenSSL::Crypto)
  endif()
  # Replaces malloc in the program; its runtime library suffices. Optional.
  find_library(TCMALLOC_LIBRARY NAMES tcmalloc_minimal libtcmalloc_minimal.so.4)
endif()

find_library(HIGHWAY_LIBRARY hwy REQUIRED)
add_library(highway INTERFACE IMPORTED)
target_link_libraries(highway INTERFACE ${HIGHWAY_LIBRARY})
# CPUs without AVX2 (before 2013) use the portable loops, because every further instruction set is compiled in every
# build.
set(highway_disabled HWY_SSSE3|HWY_SSE4)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # SVE vectors have no size at compile time, so they cannot be elements of the kernels' arrays. NEON's can.
  string(APPEND highway_disabled "|HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128")
  # Highway's NEON needs these instructions. It enables them per function, which does not cover implicit constructors.
  add_compile_options(-march=armv8-a+crypto)
endif()
target_compile_definitions(highway INTERFACE "HWY_DISABLED_TARGETS=${highway_disabled}")

if(HEADROOM_TESTS)
  find_package(GTest REQUIRED)
  enable_testing()
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # Without CCACHE_DEPEND, ccache preprocesses each file before the compiler does so again.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
