# headroom_embed(target namespace folder file...): adds the files of the folder to the target as constants. inspector.html
# is kInspectorHtml; its users declare `extern const std::string_view kInspectorHtml`.
function(headroom_embed target namespace folder)
  if(HEADROOM_SYNTAX_ONLY)
    return()  # a generated file would make the target depend on libraries, which are not linked in this case
  endif()
  list(TRANSFORM ARGN PREPEND "${CMAKE_SOURCE_DIR}/${folder}/" OUTPUT_VARIABLE files)
  set(out "${CMAKE_BINARY_DIR}/${target}_embedded.cc")
  add_custom_command(OUTPUT "${out}"
                     COMMAND ${CMAKE_COMMAND} "-DFILES=${files}" "-DNAMESPACE=${namespace}" "-DOUT=${out}"
                             -P "${CMAKE_SOURCE_DIR}/cmake/write_embedded.cmake"
                     DEPENDS ${files} "${CMAKE_SOURCE_DIR}/cmake/write_embedded.cmake" COMMENT "" VERBATIM)
  target_sources(${target} PRIVATE "${out}")
  set_source_files_properties("${out}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endfunction()
