# Cross-compiles for Linux on 64-bit ARM with Debian's g++-aarch64-linux-gnu, and runs tests under qemu-user
# (CONTRIBUTING.md, "Build for ARM"). Set HEADROOM_SYSROOT to a folder with the packages of arm64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HEADROOM_SYSROOT HEADROOM_TORCH_DIR)
if(NOT IS_DIRECTORY "${HEADROOM_SYSROOT}/usr/lib/aarch64-linux-gnu")
  message(FATAL_ERROR "HEADROOM_SYSROOT: must be a folder with usr/lib/aarch64-linux-gnu, got '${HEADROOM_SYSROOT}'")
endif()
set(CMAKE_SYSROOT "${HEADROOM_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH "${HEADROOM_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# torch's libraries link to others in the same folder; without this, the linker would look for them in the sysroot.
add_link_options("LINKER:-rpath-link,${HEADROOM_TORCH_DIR}/lib" LINKER:--allow-shlib-undefined)
set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-aarch64 -cpu neoverse-n1 -L "${HEADROOM_SYSROOT}"
    -E "LD_LIBRARY_PATH=${HEADROOM_TORCH_DIR}/lib:${HEADROOM_SYSROOT}/usr/lib/aarch64-linux-gnu")
