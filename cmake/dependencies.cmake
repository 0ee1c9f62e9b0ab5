# Everything that Headroom takes from elsewhere. torch comes from the Python environment in .env/,
# the rest from the system's packages.
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(CLI11 REQUIRED)

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
list(APPEND CMAKE_PREFIX_PATH "${HEADROOM_TORCH_DIR}/share/cmake")
find_package(Torch REQUIRED)

# What torch adds to CMAKE_CXX_FLAGS and to its target reaches only the targets that ask for it.
add_library(headroom_torch INTERFACE)
target_include_directories(headroom_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(headroom_torch INTERFACE ${TORCH_LIBRARIES})

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

if(HEADROOM_TESTS)
  find_package(GTest REQUIRED)
  enable_testing()
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()
