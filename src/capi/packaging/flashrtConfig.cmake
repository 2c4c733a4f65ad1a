# find_package(flashrt): the C ABI, found relative to this file.
#   flashrt::flashrt    the shared library
#   flashrt::exec, flashrt::runtime, flashrt::capsule    the same under the names of its parts
#   flashrt::static     the static library; link it or the shared one, never both
get_filename_component(_flashrt_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

foreach(_flashrt_file "include/flashrt/exec.h" "lib/libflashrt.so.0" "lib/libflashrt.a")
  if(NOT EXISTS "${_flashrt_prefix}/${_flashrt_file}")
    set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
    set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "${_flashrt_prefix}/${_flashrt_file} is missing: install flashrt again")
    return()
  endif()
endforeach()

if(NOT TARGET flashrt::flashrt)
  add_library(flashrt::flashrt SHARED IMPORTED)
  set_target_properties(flashrt::flashrt PROPERTIES
    IMPORTED_LOCATION "${_flashrt_prefix}/lib/libflashrt.so.0"
    IMPORTED_SONAME "libflashrt.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_flashrt_prefix}/include")

  foreach(_flashrt_part exec runtime capsule)
    add_library(flashrt::${_flashrt_part} INTERFACE IMPORTED)
    set_target_properties(flashrt::${_flashrt_part} PROPERTIES INTERFACE_LINK_LIBRARIES flashrt::flashrt)
  endforeach()

  add_library(flashrt::static STATIC IMPORTED)
  set_target_properties(flashrt::static PROPERTIES
    IMPORTED_LOCATION "${_flashrt_prefix}/lib/libflashrt.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES C
    INTERFACE_INCLUDE_DIRECTORIES "${_flashrt_prefix}/include"
    INTERFACE_LINK_LIBRARIES "@CMAKE_PRIVATE@")
endif()

unset(_flashrt_prefix)
unset(_flashrt_file)
unset(_flashrt_part)
