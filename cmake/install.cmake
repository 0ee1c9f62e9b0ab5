# `cmake --install`: every room as a library, the public headers, and a CMake package: find_package(headroom) gives
# headroom::core, headroom::ops, headroom::models, ...
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(HEADROOM_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/headroom")

# headroom_install(target name): exports `target` as headroom::<name>.
function(headroom_install target name)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name}
                        INSTALL_RPATH "$ORIGIN;${HEADROOM_TORCH_DIR}/lib")
  install(TARGETS ${target} EXPORT headroom LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

install(DIRECTORY include/headroom DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT headroom NAMESPACE headroom:: FILE headroomTargets.cmake DESTINATION ${HEADROOM_PACKAGE_DIR})
set_target_properties(headroom_flags PROPERTIES EXPORT_NAME flags)
install(TARGETS headroom_flags EXPORT headroom)
configure_package_config_file(cmake/headroomConfig.cmake.in headroomConfig.cmake
                              INSTALL_DESTINATION ${HEADROOM_PACKAGE_DIR})
write_basic_package_version_file(headroomConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/headroomConfig.cmake" "${CMAKE_BINARY_DIR}/headroomConfigVersion.cmake"
              cmake/torch.cmake DESTINATION ${HEADROOM_PACKAGE_DIR})
