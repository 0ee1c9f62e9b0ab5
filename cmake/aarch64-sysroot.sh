#!/usr/bin/env bash
# Creates a folder with the dependencies of Headroom for Linux on 64-bit ARM: Debian's arm64 packages and torch's
# wheel. Installs nothing on this machine. Needs apt-get, dpkg, pip, unzip and aarch64-linux-gnu-gcc.
#   cmake/aarch64-sysroot.sh FOLDER [TORCH]
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $0 FOLDER [TORCH]" >&2; exit 2; }
mkdir -p "$1"
folder=$(realpath "$1") torch=${2:-torch==2.13.0}
packages=(libstdc++-12-dev libgomp1 zlib1g-dev libzstd-dev libssl-dev nlohmann-json3-dev libtomlplusplus-dev libhwy-dev
          libgtest-dev libsentencepiece-dev libutf8proc-dev libpng-dev libjpeg62-turbo-dev libcli11-dev libcpp-httplib-dev)

# Packages, with a separate apt state, so that this machine's architecture does not change.
state=$folder/apt
mkdir -p "$state"/{lists,archives}/partial "$folder/root"
: >"$state/status"
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o "Dir::State=$state"
     -o "Dir::State::status=$state/status" -o "Dir::Cache=$state")
"${apt[@]}" update
"${apt[@]}" install -y --download-only --no-install-recommends "${packages[@]}"
for package in "$state"/archives/*.deb; do
  dpkg -x "$package" "$folder/root"
done

# Under qemu-user, programs see the host's /proc/cpuinfo and /sys, which torch reads. These files in the sysroot replace
# them.
identification=$folder/root/sys/devices/system/cpu/cpu0/regs/identification
mkdir -p "$folder/root/proc" "$identification"
echo 0x00000000413fd0c1 >"$identification/midr_el1"
for cpu in 0 1; do
  printf 'processor\t: %s\nFeatures\t: fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp asimdrdm lrcpc asimddp\n' $cpu
  printf 'CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x4\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n'
done >"$folder/root/proc/cpuinfo"

# torch without its CUDA libraries: libtorch.so, which only links to the others, is replaced by an empty library.
wheels=$folder/wheels
mkdir -p "$wheels"
python3 -m pip -q download -d "$wheels" --no-deps --only-binary=:all: --python-version 3.11 --platform manylinux_2_28_aarch64 \
  --platform manylinux_2_25_aarch64 --platform manylinux2014_aarch64 "$torch" 'nvidia-cuda-runtime<14' 'nvidia-cuda-cupti<14'
unzip -qo "$wheels"/torch-*.whl 'torch/version.py' 'torch/include/*' 'torch/lib/*' -x '*/libtorch_cuda*' '*/libtorch_python*' \
  -d "$folder"
for wheel in "$wheels"/nvidia_*.whl; do
  unzip -qoj "$wheel" '*/lib/libcu*.so.*' -d "$folder/torch/lib"
done
aarch64-linux-gnu-gcc -shared -fPIC -nostdlib -Wl,-soname,libtorch.so -x c /dev/null -o "$folder/torch/lib/libtorch.so"
echo "cmake --preset aarch64 -DHEADROOM_SYSROOT=$folder/root -DHEADROOM_TORCH_DIR=$folder/torch"
