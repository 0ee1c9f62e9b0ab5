#include "bits.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::bits {

bool all_equal(const std::vector<Check>& checks) {
  return std::ranges::all_of(checks, [](const Check& check) { return check.equal; });
}

std::string render_table(const std::vector<Check>& checks) {
  std::size_t name = 0, compared = 0;
  for (const Check& check : checks) {
    name = std::max(name, check.name.size());
    compared = std::max(compared, check.compared.size());
  }
  std::string text;
  for (const Check& check : checks) {
    text += fmt::format("{:<{}}  {:<{}}  {}\n", check.name, name, check.compared, compared,
                        check.equal ? "equal" : "DIFFERENT: " + check.different);
  }
  return text;
}

Json to_json(const std::vector<Check>& checks) {
  Json all = Json::array();
  for (const Check& check : checks) {
    all.push_back({{"name", check.name},
                   {"compared", check.compared},
                   {"equal", check.equal},
                   {"different", check.different.empty() ? Json() : Json(check.different)}});
  }
  return all;
}

namespace {

std::filesystem::path log_of(const ChildCommand& command) {
  return command.output.string() + ".log";
}

// Redirects a standard stream of the child to a new file.
void redirect(int stream, const std::filesystem::path& file) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (descriptor < 0 || dup2(descriptor, stream) < 0) {
    _exit(127);
  }
  close(descriptor);
}

}  // namespace

Child::Child(ChildCommand command) : command_(std::move(command)) {
  std::vector<char*> arguments;
  command_.arguments.insert(command_.arguments.begin(), command_.program.string());
  for (std::string& argument : command_.arguments) {
    arguments.push_back(argument.data());
  }
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) {
    fail("bits: {}: cannot start the program: {}", command_.program.string(), std::strerror(errno));
  }
  if (pid_ == 0) {
    redirect(STDOUT_FILENO, command_.output);
    redirect(STDERR_FILENO, log_of(command_));
    for (const auto& [name, value] : command_.environment) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    execv(arguments[0], arguments.data());
    _exit(127);
  }
}

Child::~Child() {
  if (pid_ > 0) {
    kill();
  }
}

bool Child::kill() {
  ::kill(pid_, SIGKILL);
  const int status = wait();
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

Json Child::result() {
  const int status = wait();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    const std::string message = last_line(read_text_file(log_of(command_)));
    fail("bits: headroom {} failed: {}", command_.arguments[1], message.empty() ? "no message" : message);
  }
  const std::string text = read_text_file(command_.output);
  return text.empty() ? Json() : parse_json(text, command_.output.string());
}

int Child::wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

}  // namespace headroom::bits
