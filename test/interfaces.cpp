// Uses the generated interfaces from C++: fields, defaults and constants as a C++ node would.

#include <cstdio>
#include <cstring>

#include "flashrt_ros/msg/action_chunk.hpp"
#include "flashrt_ros/msg/result_code.hpp"
#include "flashrt_ros/msg/status.hpp"
#include "flashrt_ros/srv/snapshot.hpp"
#include "rosidl_typesupport_cpp/message_type_support.hpp"

static int failures = 0;

static void expect(bool holds, const char * what)
{
  if (!holds) {
    std::printf("FAILED: %s\n", what);
    ++failures;
  }
}

int main()
{
  flashrt_ros::msg::ActionChunk chunk;
  chunk.names = {"shoulder_pan", "gripper"};
  chunk.horizon = 2;
  chunk.data = {0.5F, -1.0F, 0.25F, 0.0F};
  expect(chunk.data.size() == chunk.horizon * chunk.names.size(), "a chunk holds horizon x names values");
  expect(chunk.epoch == 0, "integers start at zero");

  flashrt_ros::srv::Snapshot::Response response;
  response.code = flashrt_ros::msg::ResultCode::EXISTS;
  expect(response.code == 5, "EXISTS is 5");
  expect(flashrt_ros::msg::ResultCode::OK == 0, "OK is 0");

  expect(std::strcmp(rosidl_generator_traits::name<flashrt_ros::msg::Status>(), "flashrt_ros/msg/Status") == 0, "the type's name");
  expect(
    rosidl_typesupport_cpp::get_message_type_support_handle<flashrt_ros::msg::ActionChunk>() != nullptr,
    "type support is linked");

  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
