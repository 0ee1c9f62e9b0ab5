# headroom_wing(name about): the rooms that follow are in src/<name>/.
# headroom_room(name [TORCH] [FULL_OPTIMISATION] [FOLDERS folder...] [ROOMS room...] [LINK lib...] [PRIVATE lib...]
#               [TESTED_WITH room-or-library...] [ABOUT text])
# One shared library per room from src/<wing>/<name>/ (or from FOLDERS of the wing), public headers under
# include/headroom/<name>/, and one test program from tests/<wing>/<name>/*.cc. `-Wl,--no-undefined` turns a call
# to a higher room into a link error. Rooms without FULL_OPTIMISATION are as fast with less of it, which saves a third
# of their compile time. ABOUT: the room's line in the map of CONTRIBUTING.md.

add_library(headroom_flags INTERFACE)
target_include_directories(headroom_flags INTERFACE "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>"
                           "$<INSTALL_INTERFACE:include>")
target_compile_features(headroom_flags INTERFACE cxx_std_20)
# For this project's own files only: compile options, and the headers that are not installed.
add_library(headroom_build INTERFACE)
target_include_directories(headroom_build INTERFACE "${CMAKE_SOURCE_DIR}/src")
target_link_libraries(headroom_flags INTERFACE $<BUILD_INTERFACE:headroom_build>)
target_compile_options(headroom_build INTERFACE -fPIC -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                       -Wno-missing-field-initializers
                       # __FILE__ must not contain the folder, so that copies of the repository share the compiler cache.
                       -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=
                       # GCC 12 reports false overflows in inlined string code. By default, it collects its garbage after
                       # every 100 MB or so, which takes a tenth of the time of files that allocate 1.5 GB.
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict$<SEMICOLON>-Wno-stringop-overflow$<SEMICOLON>--param=ggc-min-heapsize=1500000>
                       $<$<BOOL:${HEADROOM_WERROR}>:-Werror>)
if(HEADROOM_SANITIZE)
  # -g1 suffices for line numbers in traces, and optimised checks take twice as long to compile. Options of the
  # directory, so that a target's own options follow them.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O0 -g1)
  add_link_options(-fsanitize=address,undefined)
  add_library(headroom_coverage SHARED "${CMAKE_SOURCE_DIR}/tests/coverage.cc")
  target_compile_options(headroom_coverage PRIVATE -fno-sanitize=all -O2)
  target_compile_definitions(headroom_coverage PUBLIC HEADROOM_COVERAGE)
  target_compile_features(headroom_coverage PUBLIC cxx_std_20)
  install(TARGETS headroom_coverage EXPORT headroom)
endif()

# headroom_unity(target): compiles the target's files as one, so that headers are parsed and templates instantiated only
# once. Excludes files that Highway compiles once per instruction set: each includes itself but no tensors, and needs
# some optimisation even in sanitizer builds. CMake's own unity files contain absolute paths, so copies of the repository
# could not share the compiler cache.
function(headroom_unity target)
  get_target_property(sources ${target} SOURCES)
  set(includes "")
  foreach(source ${sources})
    get_filename_component(source "${source}" ABSOLUTE)
    file(STRINGS "${source}" many_targets REGEX "foreach_target")
    if(many_targets)
      set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                                  COMPILE_OPTIONS "$<$<BOOL:${HEADROOM_SANITIZE}>:-O1>")
    elseif(HEADROOM_UNITY)
      set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES HEADER_FILE_ONLY ON)
      file(RELATIVE_PATH path "${CMAKE_SOURCE_DIR}/src" "${source}")
      string(APPEND includes "#include \"${path}\"\n")
    endif()
  endforeach()
  if(NOT HEADROOM_UNITY)
    return()
  endif()
  set(unity "${CMAKE_BINARY_DIR}/unity/${target}.cc")
  file(CONFIGURE OUTPUT "${unity}" CONTENT "${includes}" @ONLY)
  target_sources(${target} PRIVATE "${unity}")
  # In a unity file, classes may have members of types from unnamed namespaces.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# Seconds after which ctest ends a test: a guard against hangs that no slow or busy machine may reach.
set(headroom_test_timeout 3600)

# Tests only call optimised code: without optimisation they compile in half the time, and without the
# undefined-behaviour checks in a tenth.
set(headroom_test_flags $<$<CONFIG:Release>:-O0>)
if(HEADROOM_SANITIZE)
  set(headroom_test_flags -fno-sanitize=undefined)
endif()

# Without this, the libraries, torch's too, would call the test program's copies of inline functions, which are not
# optimised. Data stay shared: type information and static variables of functions. Sanitizers export their functions.
set(headroom_test_link_options)
if(NOT HEADROOM_SANITIZE)
  file(WRITE "${CMAKE_BINARY_DIR}/test_symbols" "{ global: _ZT*; _ZGV*; _ZZ*; local: *; };\n")
  set(headroom_test_link_options "LINKER:--version-script=${CMAKE_BINARY_DIR}/test_symbols")
endif()

set(headroom_light_flags $<$<CONFIG:Release>:-O1>)

# One precompiled header for the rooms that use tensors, and one for their tests. A precompiled header must be compiled
# with the options of its users, so rooms of a release with FULL_OPTIMISATION do without.
set(headroom_precompiled_headers <ATen/ATen.h>)
file(WRITE "${CMAKE_BINARY_DIR}/headroom_torch_pch.cc" "")
foreach(pch headroom_torch_pch headroom_test_pch)
  add_library(${pch} OBJECT EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/headroom_torch_pch.cc")
  target_link_libraries(${pch} PRIVATE headroom_flags headroom::torch headroom::fmt)
  target_compile_options(${pch} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  target_precompile_headers(${pch} PRIVATE ${headroom_precompiled_headers})
endforeach()
target_compile_options(headroom_torch_pch PRIVATE ${headroom_light_flags})
target_compile_options(headroom_test_pch PRIVATE ${headroom_test_flags})
if(HEADROOM_SYNTAX_ONLY)
  add_compile_options(-fsyntax-only)  # for the targets below; the precompiled header itself must be built
endif()

# headroom_precompiled(target pch). With HEADROOM_SYNTAX_ONLY, only files that include ATen's header anyway use the
# precompiled header, so that it does not hide a missing include.
function(headroom_precompiled target pch)
  if(HEADROOM_SYNTAX_ONLY)
    get_target_property(sources ${target} SOURCES)
    foreach(source ${sources})
      execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -M -MG -nostdinc -I include -I src "${source}"
                      WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" OUTPUT_VARIABLE included ERROR_QUIET)
      if(NOT included MATCHES "ATen/ATen\\.h")
        set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
      endif()
    endforeach()
  endif()
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  target_precompile_headers(${target} REUSE_FROM ${pch})
endfunction()

# headroom_without_torch(target): lists the target in a file of the build, because clang-tidy can check its files
# without torch's headers. These rooms read untrusted files, so they are compiled with the fuzzers' coverage
# (tests/coverage.h).
set(headroom_without_torch "${CMAKE_BINARY_DIR}/targets_without_torch")
file(WRITE "${headroom_without_torch}" "")
function(headroom_without_torch target)
  file(APPEND "${headroom_without_torch}" "${target}\n")
  if(HEADROOM_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize-coverage=trace-pc)
    target_link_libraries(${target} PRIVATE headroom_coverage)
  endif()
endfunction()

# The map of the rooms, highest first, as the table in CONTRIBUTING.md: a line for each headroom_room().
set(headroom_map "${CMAKE_BINARY_DIR}/rooms.md")
file(WRITE "${headroom_map}" "")
function(headroom_map_room path torch about)
  file(READ "${headroom_map}" lower)
  set(below ${ARGN})
  list(TRANSFORM below REPLACE "(.+)" "`\\1`")
  list(JOIN below ", " below)
  file(WRITE "${headroom_map}" "| `${path}` | ${about} | ${below} | ${torch} |\n${lower}")
endfunction()

macro(headroom_wing name about)
  set(headroom_wing ${name})
endmacro()

function(headroom_room name)
  cmake_parse_arguments(PARSE_ARGV 1 ROOM "TORCH;FULL_OPTIMISATION" "ABOUT" "FOLDERS;ROOMS;LINK;PRIVATE;TESTED_WITH")
  if(ROOM_TORCH)
    set(torch yes)
  else()
    set(torch no)
  endif()
  if(ROOM_FOLDERS)
    headroom_map_room(${headroom_wing} ${torch} "${ROOM_ABOUT}" ${ROOM_ROOMS})
  else()
    headroom_map_room(${headroom_wing}/${name} ${torch} "${ROOM_ABOUT}" ${ROOM_ROOMS})
  endif()
  if(NOT ROOM_FOLDERS)
    set(ROOM_FOLDERS ${name})
  endif()
  list(TRANSFORM ROOM_FOLDERS PREPEND "${CMAKE_SOURCE_DIR}/src/${headroom_wing}/" OUTPUT_VARIABLE globs)
  list(TRANSFORM globs APPEND "/*.cc")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${globs})
  if(NOT sources)
    file(WRITE "${CMAKE_BINARY_DIR}/empty.cc" "")
    set(sources "${CMAKE_BINARY_DIR}/empty.cc")
  endif()
  add_library(headroom_${name} SHARED ${sources})
  set_target_properties(headroom_${name} PROPERTIES DEFINE_SYMBOL "")
  target_link_options(headroom_${name} PRIVATE $<$<PLATFORM_ID:Linux>:-Wl,--no-undefined>)
  list(TRANSFORM ROOM_ROOMS PREPEND headroom_)
  list(TRANSFORM ROOM_TESTED_WITH PREPEND headroom_ REGEX "^[a-z_]+$")  # except libraries
  target_link_libraries(headroom_${name} PUBLIC headroom_flags headroom::fmt ${ROOM_ROOMS} ${ROOM_LINK}
                        PRIVATE ${ROOM_PRIVATE})
  if(NOT ROOM_FULL_OPTIMISATION)
    target_compile_options(headroom_${name} PRIVATE ${headroom_light_flags})
  endif()
  if(NOT ROOM_TORCH)
    headroom_without_torch(headroom_${name})
  else()
    target_link_libraries(headroom_${name} PUBLIC headroom::torch)
    if(NOT (ROOM_FULL_OPTIMISATION AND CMAKE_BUILD_TYPE STREQUAL "Release"))
      headroom_precompiled(headroom_${name} headroom_torch_pch)
    endif()
  endif()
  headroom_unity(headroom_${name})
  headroom_install(headroom_${name} ${name})

  if(HEADROOM_TESTS)
    list(TRANSFORM ROOM_FOLDERS PREPEND "${CMAKE_SOURCE_DIR}/tests/${headroom_wing}/" OUTPUT_VARIABLE globs)
    list(TRANSFORM globs APPEND "/*.cc")
    file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${globs})
    if(tests)
      add_executable(${name}_test ${tests})
      target_include_directories(${name}_test PRIVATE "${CMAKE_SOURCE_DIR}/tests")
      target_compile_definitions(${name}_test PRIVATE HEADROOM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
      target_link_libraries(${name}_test PRIVATE headroom_${name} ${ROOM_TESTED_WITH} GTest::gtest_main ${ROOM_PRIVATE}
                            $<$<BOOL:${HEADROOM_SANITIZE}>:headroom_coverage>)
      if(ROOM_TORCH)
        headroom_precompiled(${name}_test headroom_test_pch)
      endif()
      target_compile_options(${name}_test PRIVATE ${headroom_test_flags})
      target_link_options(${name}_test PRIVATE ${headroom_test_link_options})
      headroom_unity(${name}_test)
      add_test(NAME ${name} COMMAND ${name}_test)
      set_tests_properties(${name} PROPERTIES TIMEOUT ${headroom_test_timeout})
      if(ROOM_TORCH)
        set_tests_properties(${name} PROPERTIES COST 150)  # long tests start first
      endif()
      if(HEADROOM_SANITIZE AND ROOM_TORCH)
        # torch is not instrumented: it keeps memory until the end, and its containers have no annotations.
        set_tests_properties(${name} PROPERTIES ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0")
      endif()
    endif()
  endif()
endfunction()
