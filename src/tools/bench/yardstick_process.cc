#include "yardstick_process.h"

#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"

namespace headroom::bench {

std::vector<std::string> python_yardstick(const std::string& benchmark, const std::string& script) {
  const std::string home = home_folder();
  const char* chosen = std::getenv("HEADROOM_PYTHON");
  const std::string python = chosen != nullptr ? chosen : home + "/.env/bin/python3";
  if (!std::filesystem::exists(python)) {
    fail("bench {}: {}: no Python with torch there; './run.sh setup' makes one, or set HEADROOM_PYTHON", benchmark,
         python);
  }
  return {python, home + "/bench/" + script, "--threads", std::to_string(at::get_num_threads())};
}

YardstickProcess::YardstickProcess(const std::vector<std::string>& command, const Environment& environment)
    : name_(command.at(0)) {
  int in[2], out[2];
  if (pipe(in) != 0 || pipe(out) != 0) {
    fail("bench: {}: cannot be started: {}", name_, std::strerror(errno));
  }
  std::vector<char*> arguments;
  for (const std::string& part : command) {
    arguments.push_back(const_cast<char*>(part.c_str()));
  }
  arguments.push_back(nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    for (const int descriptor : {in[0], in[1], out[0], out[1]}) {
      close(descriptor);
    }
    for (const auto& [name, value] : environment) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (pid_ < 0) {
    fail("bench: {}: cannot be started: {}", name_, std::strerror(errno));
  }
}

YardstickProcess::~YardstickProcess() {
  const std::string_view quit = "quit\n";
  [[maybe_unused]] const auto written = write(to_, quit.data(), quit.size());
  close(to_);
  close(from_);
  waitpid(pid_, nullptr, 0);
}

Json YardstickProcess::ask(const std::string& line) {
  send(line);
  return answer();
}

void YardstickProcess::send(const std::string& line) {
  asked_ = line;
  const std::string question = line + "\n";
  [[maybe_unused]] const auto written = write(to_, question.data(), question.size());  // who is gone does not answer
}

Json YardstickProcess::answer() {
  std::string text;
  char c = 0;
  while (read(from_, &c, 1) == 1 && c != '\n') {
    text += c;
  }
  if (text.empty()) {
    fail("bench: {}: ended without an answer to '{}'", name_, asked_);
  }
  return parse_json(text, name_);
}

std::unique_ptr<YardstickProcess> start_if_there(const std::vector<std::string>& command, const std::string& missing) {
  auto process = std::make_unique<YardstickProcess>(command);
  try {
    process->ask("run 1");
  } catch (const Error&) {
    log_warning("bench {}", missing);
    return nullptr;
  }
  return process;
}

}  // namespace headroom::bench
