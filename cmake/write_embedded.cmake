# Writes OUT: each of FILES as a constant of NAMESPACE, split into literals that every compiler accepts.
set(text "#include <string_view>\n\nnamespace ${NAMESPACE} {\n")
foreach(file IN LISTS FILES)
  get_filename_component(stem "${file}" NAME_WE)
  get_filename_component(extension "${file}" EXT)
  string(SUBSTRING "${extension}" 1 -1 extension)
  foreach(word IN ITEMS stem extension)
    string(SUBSTRING "${${word}}" 0 1 first)
    string(SUBSTRING "${${word}}" 1 -1 others)
    string(TOUPPER "${first}" first)
    set(${word} "${first}${others}")
  endforeach()
  file(READ "${file}" content HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${content}")
  string(APPEND text "static const unsigned char k${stem}${extension}Bytes[] = {${bytes}0};\n"
         "extern const std::string_view k${stem}${extension};\n"
         "const std::string_view k${stem}${extension}(reinterpret_cast<const char*>(k${stem}${extension}Bytes), "
         "sizeof k${stem}${extension}Bytes - 1);\n")
endforeach()
string(APPEND text "}\n")
file(WRITE "${OUT}" "${text}")
