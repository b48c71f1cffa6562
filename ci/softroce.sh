#!/usr/bin/env bash
# RDMA without hardware: a throw-away QEMU guest (no KVM, no root) with two Soft-RoCE devices, rxe0 (10.77.0.1, fd77::1) and rxe1
# (10.77.0.2, fd77::2), joined by a cable.
#
#   ci/softroce.sh                     builds the tests of the RoCE suite and runs them all in one guest
#   ci/softroce.sh PROGRAM [ARGS...]   runs a program or a /bin/sh script of this machine in a guest
#   ci/softroce.sh --install           installs what both need (Debian, as root)
#
# The program's output is passed through and its exit status is the script's; 124 is a time-out, 125 that there was no
# guest. Settings, all optional:
#   SOFTROCE_TIMEOUT=1200  seconds for the guest         SOFTROCE_SMP=2 SOFTROCE_MEM=2G   its size
#   SOFTROCE_FILES="..."   more files that it gets, programs with their libraries
#   SOFTROCE_ENV="NAME.."  more variables that it gets; those beginning with RUST and SHMEM are always passed
#   SOFTROCE_APPEND="..."  more of the kernel's command line
#   SOFTROCE_LOG=file      where the kernel's messages go
#   SOFTROCE_CACHE=folder  where its kernel is kept, 210 MB
set -Eeuo pipefail
trap 'exit 125' ERR
export PATH=$PATH:/usr/sbin:/sbin

RUN="qemu-system-x86 busybox-static cpio kmod xz-utils iproute2 binutils libibverbs1 ibverbs-providers librdmacm1"
BUILD="gcc libc6-dev pkg-config libibverbs-dev librdmacm-dev libclang1-14 libclang-common-14-dev"
GUEST_KERNEL=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p') || :

die() {
  echo "softroce: $*" >&2
  exit 125
}

# Installs those of the packages that are missing.
want() {
  local missing
  missing=$(comm -23 <(printf '%s\n' "$@" | sort) <(dpkg-query -Wf '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | sort -u))
  [ -n "$missing" ] || return 0
  [ "$(id -u)" = 0 ] || die "please install" $missing
  apt-get -q update >&2
  DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends $missing >&2
}

# Debian's kernel, taken apart once. Only the generic flavour has Soft-RoCE, and of its 400 MB the guest needs little.
kernel() {
  if [ -z "$GUEST_KERNEL" ] && [ "$(id -u)" = 0 ]; then
    apt-get -q update >&2
    GUEST_KERNEL=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
  fi
  [ -n "$GUEST_KERNEL" ] || die "no kernel package is known: apt-get update"
  KERNEL=${SOFTROCE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/shmem-softroce}/$GUEST_KERNEL
  [ ! -e "$KERNEL/vmlinux" ] || return 0
  local new
  mkdir -p "${KERNEL%/*}"
  new=$(mktemp -d "$KERNEL.XXXXXX")
  CLEAN+=("$new")
  (cd "$new" && apt-get -q -o APT::Sandbox::User=root download "$GUEST_KERNEL" >&2) || die "cannot download $GUEST_KERNEL"
  dpkg-deb --fsys-tarfile "$new"/*.deb | tar -x -C "$new" --wildcards './boot/vmlinuz*' '*/modules.builtin*' \
    '*/kernel/net/*' '*/kernel/lib/*' '*/kernel/crypto/*' '*/kernel/arch/*' '*/drivers/infiniband/*' '*/drivers/net/*'
  rm "$new"/*.deb
  depmod -b "$new" "$(ls "$new/lib/modules")" 2>/dev/null
  # The guest starts 5 s sooner when it need not unpack its kernel, which begins somewhere in this file.
  local offset
  for offset in $(LC_ALL=C grep -aboP '\xFD7zXZ\x00' "$new"/boot/vmlinuz* | cut -d: -f1); do
    tail -c+$((offset + 1)) "$new"/boot/vmlinuz* | xz -dc --single-stream >"$new/unpacked" 2>/dev/null || :
    [ "$(head -c4 "$new/unpacked" | tail -c3)" != ELF ] || break
  done
  [ "$(head -c4 "$new/unpacked" | tail -c3)" = ELF ] || cp "$new"/boot/vmlinuz* "$new/unpacked"
  chmod 755 "$new"
  mv "$new/unpacked" "$new/vmlinux"
  mv -T "$new" "$KERNEL" 2>/dev/null || [ -e "$KERNEL/vmlinux" ] # another run may have been faster
}

# Copies files and folders to the same paths in the guest, programs and libraries with what these load.
give() {
  local file needed
  for file; do
    [ ! -e "$ROOT$file" ] || continue
    [ -e "$file" ] || die "there is no $file"
    mkdir -p "$ROOT${file%/*}"
    if [ -f "$file" ] && [ "$(head -c4 "$file" | tail -c3 | tr -d '\0')" = ELF ]; then
      strip --strip-debug -o "$ROOT$file" "$file"
      for needed in $(ldd "$file" 2>/dev/null | grep -o '/[^ ]*' || :); do give "$needed"; done
    else
      cp -aL "$file" "$ROOT$file"
    fi
  done
}

quoted() {
  local word
  for word; do printf "'%s' " "${word//\'/\'\\\'\'}"; done
}

# Makes the guest's file system, all in memory, with what the caller put into ROOT and the commands of $1 to be run.
furnish() {
  local modules=$KERNEL/lib/modules version module library
  version=$(ls "$modules")
  mkdir -p "$ROOT"/{bin,sbin,proc,sys,dev,tmp,run,root,modules}
  cp "$(command -v busybox)" "$ROOT/bin/busybox"
  for module in crc32_generic ib_uverbs rdma_rxe veth; do
    modprobe -d "$KERNEL" -S "$version" --show-depends "$module" 2>/dev/null | sed -n 's/^insmod \([^ ]*\).*/\1/p' || :
  done | awk '!seen[$0]++' | while read -r module; do
    case $module in
      *.xz) xz -dc "$module" >"$ROOT/modules/$(basename "$module" .xz)" ;;
      *) cp "$module" "$ROOT/modules" ;;
    esac
    basename "$module" .xz >>"$ROOT/modules/order"
  done
  grep -q rdma_rxe "$ROOT/modules/order" || die "$GUEST_KERNEL has no Soft-RoCE"
  give "$(readlink -f "$(command -v ip)")" "$(readlink -f "$(command -v rdma)")"
  ln -sf "$(readlink -f "$(command -v ip)")" "$ROOT/sbin/ip"
  ln -sf "$(readlink -f "$(command -v rdma)")" "$ROOT/sbin/rdma"
  # What is only found when a program runs: the verbs libraries, the driver's half of them, and what ends threads.
  for library in libibverbs.so.1 librdmacm.so.1 libgcc_s.so.1; do
    give "$(ldconfig -p | awk -v name="$library" '$1 == name && /x86-64/ { print $NF; exit }')"
  done
  give /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so /etc/libibverbs.d/rxe.driver /etc/ld.so.cache
  # shellcheck disable=SC2086
  give ${SOFTROCE_FILES:-}
  {
    local name
    for name in $(compgen -e); do
      case " ${SOFTROCE_ENV:-} $name " in
        *" $name "*" $name "* | *" RUST"*" " | *" SHMEM_"*" ") echo "export $name=$(quoted "${!name}")" ;;
      esac
    done
    echo "export SOFTROCE=1; mkdir -p $(quoted "$PWD"); cd $(quoted "$PWD")"
    echo "$1"
  } >"$ROOT/run.sh"
  init >"$ROOT/init"
  chmod +x "$ROOT/init"
}

# What the guest does first.
init() {
  cat <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root
end() { echo; echo "softroce-status=$1"; poweroff -f; }
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
chmod 1777 /tmp /dev/shm
while read -r module; do insmod "/modules/$module" || end "no $module"; done </modules/order
/sbin/ip link set lo up
/sbin/ip link add roce0 mtu 4500 type veth peer name roce1 mtu 4500
# Both ends have addresses of this system, which the kernel would reach without the cable: the table of local addresses
# comes after those that send what leaves by one end to the other, and one end takes what comes from the other.
address() {
  own=$1$((i + 1)) peer=$1$((2 - i))
  /sbin/ip address add $own/$2 dev roce$i $3
  /sbin/ip route add $peer dev roce$i src $own table 10$i
  /sbin/ip $4 rule add pref 10 iif lo oif roce$i to $peer lookup 10$i
  /sbin/ip neighbour replace $peer lladdr "$(cat /sys/class/net/roce$((1 - i))/address)" dev roce$i
}
for family in -4 -6; do
  /sbin/ip $family rule add pref 1000 lookup local
  /sbin/ip $family rule del pref 0
done
for i in 0 1; do
  echo 1 >/proc/sys/net/ipv4/conf/roce$i/accept_local
  /sbin/ip link set roce$i up
  address 10.77.0. 24
  /sbin/rdma link add rxe$i type rxe netdev roce$i || end "no rxe$i"
  # After the device, in whose table of GIDs it comes behind the one of IPv4.
  address fd77:: 64 nodad -6
done
tries=0
until grep -q ffff: /sys/class/infiniband/rxe0/ports/1/gids/1 && grep -q fd77: /sys/class/infiniband/rxe1/ports/1/gids/2; do
  sleep 0.1
  tries=$((tries + 1))
  [ $tries -lt 100 ] || end "no GIDs"
done
stty -F /dev/ttyS0 raw -echo
{ sh /run.sh </dev/null; echo $? >/run/status; } 2>&1 | cat >/dev/ttyS0
end "$(cat /run/status)"
INIT
}

# Runs these commands of the guest's shell in a guest with these programs.
boot() {
  local commands=$1 status log
  shift
  want $RUN
  WORK=$(mktemp -d)
  CLEAN+=("$WORK")
  ROOT=$WORK/root log=${SOFTROCE_LOG:-$WORK/log}
  kernel
  give "$@"
  furnish "$commands"
  (cd "$ROOT" && find . -print0 | cpio -0 -o -H newc --quiet) >"$WORK/initrd"
  rm -rf "$ROOT"
  : >"$log"
  # Without these three the guest's kernel copies memory by `rep movs`, which QEMU does byte by byte: aligned words
  # that a device writes would be seen torn (7407 of 20 000 writes of 8 bytes were; none of 250 000 without). Unless it trusts
  # the processor's clock, it asks a device for the time, which takes it 2 us instead of 0.1.
  timeout -k 5 "${SOFTROCE_TIMEOUT:-1200}" qemu-system-x86_64 -M pc -accel tcg,thread=multi -cpu max \
    -smp "${SOFTROCE_SMP:-2}" -m "${SOFTROCE_MEM:-2G}" -nodefaults -no-user-config -display none -no-reboot \
    -kernel "$KERNEL/vmlinux" -initrd "$WORK/initrd" -append "console=ttyS1 panic=-1 quiet mitigations=off nowatchdog \
      no_timer_check tsc=reliable random.trust_cpu=on rcupdate.rcu_expedited=1 cryptomgr.notests apparmor=0 audit=0 \
      clearcpuid=erms,fsrm,rep_good ${SOFTROCE_APPEND:-}" \
    -serial stdio -serial "file:$log" </dev/null &
  QEMU=$!
  wait "$QEMU" && status=0 || status=$?
  QEMU=
  [ $status != 124 ] && [ $status != 137 ] || { echo "softroce: time-out" >&2 && exit 124; }
  status=$(tr -d '\r' <"$log" | sed -n 's/^softroce-status=//p' | tail -n1)
  case $status in
    [0-9]*) exit "$status" ;;
    *) tail -n25 "$log" >&2 && die "the guest failed: ${status:-it does not say why}" ;;
  esac
}

# Builds the tests of RoCE, those of the verbs and those of PEs on several hosts, and runs them over the guest's devices.
suite() {
  want $BUILD
  if [ -z "${LIBCLANG_PATH:-}" ] && [ -d /usr/lib/llvm-14/lib ]; then export LIBCLANG_PATH=/usr/lib/llvm-14/lib; fi
  cd "$(dirname "$0")/.."
  local built
  built=$(cargo test -p shmem --features roce --lib --test network --no-run --message-format=json-render-diagnostics)
  # One line a program: its source and its path.
  built=$(sed -n 's/.*"src_path":"\([^"]*\)".*"executable":"\([^"]*\)".*/\1 \2/p' <<<"$built")
  local source program commands="failed=0" alone= programs=()
  while read -r source program; do
    programs+=("$program")
    case $source in
      */src/lib.rs)
        commands+=$'\n'"$(quoted "$program") transport::roce::verbs:: || failed=1"
        # These take parts of the guest away.
        alone+=$'\n'"$(quoted "$program") --ignored transport::roce::verbs:: || failed=1"
        ;;
      */tests/network.rs)
        commands+=$'\n'"SHMEM_TEST_ROUTE=roce $(quoted "$program") --test-threads 1 || failed=1"
        ;;
    esac
  done <<<"$built"
  boot "$commands$alone"$'\nexit $failed' "${programs[@]}"
}

CLEAN=() QEMU=
trap 'rm -rf "${CLEAN[@]}"' EXIT
trap 'if [ -n "$QEMU" ]; then kill "$QEMU" 2>/dev/null; fi; exit 143' INT TERM HUP
case ${1:-} in
  '') suite ;;
  --install) want $RUN $BUILD ;;
  *)
    program=$(readlink -f -- "$(command -v -- "$1")") || die "there is no program $1"
    shift
    boot "exec $(quoted "$program" "$@")" "$program"
    ;;
esac
