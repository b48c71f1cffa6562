#!/usr/bin/env bash
# Installs what `cargo build --release --workspace` has built: shmem-capi/install.sh PREFIX
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 PREFIX" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
built=${CARGO_TARGET_DIR:-$here/../target}/release
for file in libshmem.so libshmem.a oshcc oshrun shmemrun; do
  [ -e "$built/$file" ] || { echo "$0: $built/$file is missing: cargo build --release --workspace" >&2; exit 1; }
done
install -d "$1"/{bin,lib/pkgconfig,include/mpp,share/man/man1,share/man/man3}
prefix=$(cd "$1" && pwd)
install -m 755 "$built"/{shmemrun,oshrun,oshcc} "$prefix/bin"
[ ! -e "$built/shmem-perf" ] || install -m 755 "$built/shmem-perf" "$prefix/bin"
ln -sf oshcc "$prefix/bin/oshc++"
install -m 755 "$built/libshmem.so" "$prefix/lib"
# A tool that defines functions of its own comes before the library's, which it reaches by their twins.
objcopy --wildcard --weaken-symbol='shmem_*' --weaken-symbol='start_pes' "$built/libshmem.a" "$prefix/lib/libshmem.a"
install -m 644 "$here"/include/{shmem,shmemx,pshmem}.h "$prefix/include"
install -m 644 "$here/include/mpp/shmem.h" "$prefix/include/mpp"
version=$(sed -n 's/^#define SHMEM_VENDOR_STRING "shmem \(.*\)"$/\1/p' "$here/include/shmem.h")
cat > "$prefix/lib/pkgconfig/shmem.pc" <<EOF
prefix=$prefix
Name: shmem
Description: OpenSHMEM 1.6 for C and C++
Version: $version
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -Wl,-rpath,\${prefix}/lib -lshmem
Libs.private: -lpthread -ldl -lm
EOF
for page in "$here"/man/*.[13]; do
  install -m 644 "$page" "$prefix/share/man/man${page##*.}"
done
ln -sf shmemrun.1 "$prefix/share/man/man1/oshrun.1"
ln -sf oshcc.1 "$prefix/share/man/man1/oshc++.1"
echo "installed in $prefix: add $prefix/bin to PATH"
