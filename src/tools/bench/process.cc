#include "process.h"

#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"

namespace headroom::bench {

std::vector<std::string> python_baseline(const std::string& benchmark, const std::string& script, const Json& size,
                                         const std::vector<std::string>& more) {
  const std::string home = home_folder();
  const char* chosen = std::getenv("HEADROOM_PYTHON");
  const std::string python = chosen != nullptr ? chosen : home + "/.env/bin/python3";
  if (!std::filesystem::exists(python)) {
    fail("bench {}: {}: not found, a Python with torch is needed; run ./run.sh setup or set HEADROOM_PYTHON", benchmark,
         python);
  }
  std::vector<std::string> command = {python,      home + "/bench/" + script,
                                      "--threads", std::to_string(at::get_num_threads()),
                                      "--size",    to_json_line(size)};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

BenchProcess::BenchProcess(const std::vector<std::string>& command, const Environment& environment)
    : name_(command.at(0)) {
  int in[2], out[2];
  if (pipe(in) != 0 || pipe(out) != 0) {
    fail("bench: {}: cannot start the program: {}", name_, std::strerror(errno));
  }
  std::vector<char*> arguments =
      transformed(command, [&](const std::string& part) { return const_cast<char*>(part.c_str()); });
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
    fail("bench: {}: cannot start the program: {}", name_, std::strerror(errno));
  }
}

BenchProcess::~BenchProcess() {
  const std::string_view quit = "quit\n";
  [[maybe_unused]] const auto written = write(to_, quit.data(), quit.size());
  close(to_);
  close(from_);
  waitpid(pid_, nullptr, 0);
}

Json BenchProcess::ask(const std::string& line) {
  send(line);
  return answer();
}

void BenchProcess::send(const std::string& line) {
  asked_ = line;
  const std::string question = line + "\n";
  [[maybe_unused]] const auto written =
      write(to_, question.data(), question.size());  // answer() reports a process that has exited
}

Json BenchProcess::answer() {
  std::string text;
  char c = 0;
  while (read(from_, &c, 1) == 1 && c != '\n') {
    text += c;
  }
  if (text.empty()) {
    fail("bench: {}: exited without answering '{}'", name_, asked_);
  }
  return parse_json(text, name_);
}

std::unique_ptr<BenchProcess> start_if_available(const std::vector<std::string>& command, const std::string& missing) {
  auto process = std::make_unique<BenchProcess>(command);
  try {
    process->ask("run 1");
  } catch (const Error&) {
    log_warning("bench {}", missing);
    return nullptr;
  }
  return process;
}

BenchRanks::BenchRanks(const std::vector<std::string>& command, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    processes_.push_back(std::make_unique<BenchProcess>(
        command, ranks > 1 ? rendezvous_.variables(rank, ranks) : BenchProcess::Environment()));
  }
}

BenchRanks::~BenchRanks() {
  for (const auto& process : processes_) {
    process->send("quit");
  }
}

void BenchRanks::run() {
  ask("run 1");
}

std::int64_t BenchRanks::memory() {
  return max_over(
      ask("memory"), [](const Json& bytes) { return bytes.get<std::int64_t>(); }, std::int64_t{0});
}

std::vector<Json> BenchRanks::ask(const std::string& line) {
  for (const auto& process : processes_) {
    process->send(line);
  }
  return transformed(processes_, [&](const auto& process) { return process->answer(); });
}

}  // namespace headroom::bench
