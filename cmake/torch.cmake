# Defines headroom::torch and headroom::fmt for the torch in the folder HEADROOM_TORCH_DIR, for this project and, as
# part of the installed package, for its users. HEADROOM_TORCH_INCLUDE: another path of its headers.
if(TARGET headroom::torch)
  return()
endif()

# libtorch.so contains no code, but links to the libraries of every device that torch was built for.
add_library(headroom::torch INTERFACE IMPORTED)
if(NOT DEFINED HEADROOM_TORCH_INCLUDE)
  set(HEADROOM_TORCH_INCLUDE "${HEADROOM_TORCH_DIR}/include")
endif()
target_include_directories(headroom::torch INTERFACE
                           "${HEADROOM_TORCH_INCLUDE}" "${HEADROOM_TORCH_INCLUDE}/torch/csrc/api/include")
target_link_libraries(headroom::torch INTERFACE
                      "-Wl,--no-as-needed" "${HEADROOM_TORCH_DIR}/lib/libtorch.so" "-Wl,--as-needed"
                      "${HEADROOM_TORCH_DIR}/lib/libtorch_cpu.so" "${HEADROOM_TORCH_DIR}/lib/libc10.so")

# at::parallel_for is a template: compiled without OpenMP, it silently runs on one thread. The runtime must be the one
# that torch itself loads, which its wheel contains.
find_package(OpenMP REQUIRED COMPONENTS CXX)
file(GLOB torch_openmp "${HEADROOM_TORCH_DIR}/lib/libgomp*.so*" "${HEADROOM_TORCH_DIR}/lib/libiomp5*.so*"
     "${HEADROOM_TORCH_DIR}/../torch.libs/libgomp*.so*")
if(torch_openmp)
  list(GET torch_openmp 0 torch_openmp)
else()
  set(torch_openmp OpenMP::OpenMP_CXX)
endif()
target_compile_options(headroom::torch INTERFACE ${OpenMP_CXX_FLAGS})
target_link_libraries(headroom::torch INTERFACE ${torch_openmp})

# Uses the fmt inside torch's include folder, which would shadow the system's fmt anyway. The room core contains its
# functions (src/foundation/core/text/format.cc).
add_library(headroom::fmt INTERFACE IMPORTED)
target_include_directories(headroom::fmt INTERFACE "${HEADROOM_TORCH_INCLUDE}")
