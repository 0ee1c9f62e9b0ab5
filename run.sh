#!/usr/bin/env bash
# Sets up Headroom (the first call only) and runs it; `./run.sh help` lists the commands.
set -euo pipefail

here=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
preset=${HEADROOM_PRESET:-release}
build=$here/build/$preset
env=$here/.env
python=$env/bin/python3

# Requirements for pip. A torch that was requested once is kept until another one is requested.
torch=torch==2.13.0
if [[ -n ${HEADROOM_TORCH:-} ]]; then
  torch=$HEADROOM_TORCH
elif [[ -f $env/chosen_torch ]]; then
  torch=$(<"$env/chosen_torch")
fi
# transformers renames arguments of its models between minor versions; the tests pass with this one.
test_packages=('pytest==8.*' 'tensorboard==2.*' 'sacrebleu==2.*' 'transformers==5.24.*' 'sentencepiece==0.2.*' 'scikit-build-core==1.*' 'openai==3.*')

system_packages=(build-essential cmake ninja-build ccache python3-venv libtomlplusplus-dev libcli11-dev
  nlohmann-json3-dev libsentencepiece-dev libutf8proc-dev libssl-dev zlib1g-dev libzstd-dev libpng-dev libjpeg-dev libhwy-dev libgtest-dev libbenchmark-dev
  libcpp-httplib-dev libgloo-dev libtcmalloc-minimal4)

# Nothing is written outside the repository.
export CCACHE_DIR=${CCACHE_DIR:-$here/.cache/ccache}
# Copies of the repository share what is compiled; the Python package is built from one (python/wheel/make.py).
export CCACHE_BASEDIR=$here CCACHE_ABSSTDERR=1
export PIP_CACHE_DIR=${PIP_CACHE_DIR:-$here/.cache/pip}
export HEADROOM_HOME=$here
export HEADROOM_CACHE=${HEADROOM_CACHE:-$here/.cache/headroom}

usage() {
  cat <<'USAGE'
usage: ./run.sh COMMAND

  demo              the main job on the built-in corpus: a table, and runs/demo/report.html
  headroom ARGS...  the command line; ./run.sh headroom --help lists the commands
  torchrun ARGS...  several ranks: ./run.sh torchrun --standalone --nproc-per-node 2 headroom train ...
  test [ARGS...]    every test; ARGS go to ctest (-R core)
  bench [NAME...]   benchmarks against their baselines
  setup             only set up: system packages, .env/ with torch, build/
  install           set up, and put `headroom` into ~/.local/bin, with completion for bash and zsh
  wheel [TORCH...]  the Python package as wheels for people without a compiler, in dist/: for the torch of .env/, or
                    for each TORCH (2.12 2.11)
  format [--check]  clang-format over the sources; --check only lists unformatted code
  lint [FILE...]    clang-tidy over FILEs of the repository, or over the rooms without torch

Environment: HEADROOM_TORCH   pip's requirement for torch, with options if need be (torch==2.13.0)
             HEADROOM_CACHE   folder for prepared data (default: .cache/headroom in the repository)
             HEADROOM_PRESET  what to build: release, debug, asan, ci
USAGE
}

say() { printf 'headroom: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# Installs Debian packages with apt-get if that needs no password.
need_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "setup: not a Debian system; assuming that these are installed: $*"
    return
  fi
  local package missing=()
  for package in "$@"; do
    if [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) != "install ok installed" ]]; then
      missing+=("$package")
    fi
  done
  ((${#missing[@]})) || return 0

  local sudo=()
  if [[ $(id -u) != 0 ]]; then
    if ! sudo -n true 2>/dev/null; then
      die "setup: system packages are missing; please run: sudo apt-get install -y ${missing[*]}"
    fi
    sudo=(sudo -n)
  fi
  say "setup: installing system packages: ${missing[*]}"
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
  { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } >&2 </dev/null ||
    die "setup: apt-get failed (above); the command was: apt-get install -y ${missing[*]}"
}

# pip_install STAMP REQUIREMENT...: installs into .env/, unless STAMP records exactly these requirements.
pip_install() {
  local stamp=$env/$1
  shift
  [[ -f $stamp && $(<"$stamp") == "$*" ]] && return
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    local base=/usr/bin/python3
    [[ -x $base ]] || base=python3
    say "setup: making .env/ with $base ($("$base" --version 2>&1))"
    "$base" -m venv --clear "$env" >&2 || die "setup: .env: $base -m venv failed (above)"
  fi
  say "setup: installing into .env/: $*"
  # Unquoted, because a requirement may contain options.
  # shellcheck disable=SC2086
  (set -f && "$python" -m pip install --disable-pip-version-check $* >&2 </dev/null) ||
    die "setup: pip install $* failed (above)"
  printf '%s' "$*" >"$stamp"
}

# torch's own index has builds without CUDA, a tenth of the size. They are used if there is no NVIDIA GPU, unless another
# torch is requested.
install_torch() {
  local index=https://download.pytorch.org/whl/cpu
  if [[ $torch == torch==2.13.0 && ! -e /dev/nvidiactl ]] &&
    /usr/bin/env python3 -c "import urllib.request as u; u.urlopen('$index/torch/', timeout=10)" 2>/dev/null; then
    export PIP_EXTRA_INDEX_URL=$index
  fi
  pip_install torch "$torch" numpy
  [[ -z ${HEADROOM_TORCH:-} ]] || printf '%s' "$torch" >"$env/chosen_torch"
}

configure() {
  local cache=$build/CMakeCache.txt
  if [[ -f $cache ]] && ! grep -qx "CMAKE_HOME_DIRECTORY:INTERNAL=$here" "$cache"; then
    say "setup: build/$preset was configured for another path; rebuilding"
    rm -rf "$build"
  fi
  [[ -f $build/build.ninja ]] && return
  say "setup: configuring build/$preset"
  cmake -S "$here" --preset "$preset" --log-level=WARNING >&2 || die "setup: cmake failed (above)"
}

# build [TARGET...]: one compiler per core, but no more than fit in memory.
build() {
  local cores memory jobs
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 2000000)}' /proc/meminfo)
  jobs=$((memory < 1 ? 1 : memory < cores ? memory : cores))
  say "setup: building build/$preset with $jobs jobs"
  ninja -C "$build" -j "$jobs" "$@" >&2 </dev/null || die "setup: the build failed (above)"
}

# True if nothing is newer than the last successful build and .env/ contains the requested packages.
up_to_date() {
  [[ -x $build/bin/headroom && -f $build/python/headroom_torch/libheadroom_torch.so ]] || return 1
  [[ -f $build/built && -f $env/torch ]] || return 1
  [[ $(<"$env/torch") == "$torch numpy" ]] || return 1
  [[ -z $(find "$here"/{CMakeLists.txt,CMakePresets.json,cmake,include,src,python} "$env/torch" \
    -newer "$build/built" -print -quit) ]]
}

setup() {
  up_to_date && return
  mkdir -p "$here/build"
  (
    # One setup runs at a time; a setup that has waited finds everything up to date.
    flock 9
    up_to_date && exit
    need_packages "${system_packages[@]}"
    install_torch
    configure
    : >"$build/building"
    build headroom headroom_engine headroom_torch_package 9>&-
    mv "$build/building" "$build/built"
    say "setup: done; ./run.sh install puts headroom into your PATH"
  ) 9>"$here/build/lock"
}

# Links the program built here, and writes its completion script, below ~/.local.
install_for_user() {
  local program=$build/bin/headroom bin=$HOME/.local/bin
  local completion=${XDG_DATA_HOME:-$HOME/.local/share}/bash-completion/completions/headroom
  mkdir -p "$bin" "$(dirname "$completion")"
  ln -sfn "$program" "$bin/headroom"
  "$program" __complete >"$completion"
  say "install: $bin/headroom -> $program"
  say "install: completion for bash: $completion"
  [[ :$PATH: == *:$bin:* ]] || say "install: $bin is not in PATH yet: export PATH=\"$bin:\$PATH\""
  say "install: completion for zsh: autoload -U bashcompinit && bashcompinit && source $completion, after compinit"
}

run_tests() {
  setup
  (
    flock 9
    pip_install test "${test_packages[@]}"
    build 9>&-
  ) 9>"$here/build/lock"
  local log=$build/Testing/run.log status=0
  # Waiting threads must not keep a core busy, because several programs share the cores.
  export OMP_WAIT_POLICY=PASSIVE
  ctest --test-dir "$build" --output-on-failure --no-tests=error --output-log "$log" -j "$(nproc)" "$@" </dev/null ||
    status=$?
  echo
  grep -E '^[0-9]+% tests passed' "$log" | tail -n 1
  return $status
}

# over_sources PATTERN... -- COMMAND...: runs COMMAND on the repository's files that match.
over_sources() {
  local patterns=()
  while [[ $1 != -- ]]; do
    patterns+=("$1")
    shift
  done
  shift
  (cd "$here" && git ls-files -z --cached --others --exclude-standard -- "${patterns[@]}" | xargs -0 "$@")
}

# Runs clang-tidy on the given files. By default on the rooms without torch, as unity files: this takes a fifth of the
# time, but omits checks of single files.
lint() {
  local options=(--quiet -p "$build" --extra-arg=-Wno-unknown-warning-option
    --extra-arg=-Wno-unused-command-line-argument)  # options of GCC
  if (($#)); then
    over_sources "$@" -- -P "$(nproc)" -n 1 clang-tidy "${options[@]}"
    return
  fi
  local -a units
  mapfile -t units < <(sed "s|.*|$build/unity/&.cc|" "$build/targets_without_torch")
  [[ -f ${units[0]} ]] || die "lint: preset $preset compiles file by file; use release or ci, or name files"
  printf '%s\0' "${units[@]}" |
    xargs -0 -P "$(nproc)" -n 1 clang-tidy "${options[@]}" --checks='-bugprone-suspicious-include,-clang-analyzer-*'
}

case ${1:-help} in
  setup)
    setup
    ;;
  install)
    setup
    install_for_user
    ;;
  headroom)
    setup
    shift
    exec "$build/bin/headroom" "$@"
    ;;
  torchrun)
    setup
    shift
    PATH=$build/bin:$PATH exec "$python" -m torch.distributed.run --no-python "$@"
    ;;
  demo)
    setup
    shift
    out=(--out "$here/runs/demo")
    for argument in "$@"; do
      if [[ $argument == --out || $argument == --out=* ]]; then out=(); fi
    done
    exec "$build/bin/headroom" demo "${out[@]}" "$@"
    ;;
  bench)
    setup
    shift
    exec "$build/bin/headroom" bench "$@"
    ;;
  test)
    shift
    run_tests "$@"
    ;;
  wheel)
    need_packages "${system_packages[@]}"
    install_torch
    shift
    "$python" "$here/python/wheel/make.py" "$here/dist" "$@" || die "wheel: failed (above)"
    ;;
  format)
    need_packages clang-format
    if [[ ${2:-} == --check ]]; then
      over_sources '*.h' '*.cc' '*.cu' -- clang-format --dry-run -Werror
    else
      over_sources '*.h' '*.cc' '*.cu' -- clang-format -i
    fi
    ;;
  lint)
    setup
    need_packages clang-tidy
    shift
    lint "$@"
    ;;
  help | -h | --help)
    usage
    ;;
  *)
    say "run.sh: unknown command '$1'"
    usage >&2
    exit 2
    ;;
esac
