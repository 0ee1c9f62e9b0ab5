# headroom_embed(target namespace file...): files of src/<floor>/inspector/ as constants of the target, kInspectorHtml of
# inspector.html: std::string_view in a header's extern declaration (src/<floor>/inspector/embedded.h).
function(headroom_embed target namespace)
  if(HEADROOM_SYNTAX_ONLY)
    return()  # a made file makes its target's files wait for the libraries below, which are not linked then
  endif()
  string(REPLACE "headroom_" "" floor ${target})
  set(folder "${CMAKE_SOURCE_DIR}/src/${floor}/inspector")
  list(TRANSFORM ARGN PREPEND "${folder}/" OUTPUT_VARIABLE files)
  set(out "${CMAKE_BINARY_DIR}/${target}_embedded.cc")
  add_custom_command(OUTPUT "${out}"
                     COMMAND ${CMAKE_COMMAND} "-DFILES=${files}" "-DNAMESPACE=${namespace}" "-DOUT=${out}"
                             -P "${CMAKE_SOURCE_DIR}/cmake/write_embedded.cmake"
                     DEPENDS ${files} "${CMAKE_SOURCE_DIR}/cmake/write_embedded.cmake" COMMENT "" VERBATIM)
  target_sources(${target} PRIVATE "${out}")
  set_source_files_properties("${out}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
endfunction()
