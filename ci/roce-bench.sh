#!/usr/bin/env bash
# How fast transfers over RoCE are beside the tools of the verbs world (ib_write_lat, ib_write_bw, ibv_rc_pingpong), on the
# Soft-RoCE devices of ci/softroce.sh: all in one guest, in turns, since absolute times say little there.
#
#   ci/roce-bench.sh [ROUNDS]          5 rounds by default; prints medians of the rounds, and of their ratios
#   ci/roce-bench.sh --install         installs what it needs (Debian, as root)
#
# The guest's processors poll when they idle, as ib_write_lat takes 3 ms there otherwise. The settings of
# ci/softroce.sh hold. ROCE_BENCH_LINES=file keeps the single measurements.
set -Eeuo pipefail
cd "$(dirname "$0")/.."

install() {
  ci/softroce.sh --install
  command -v ib_write_lat >/dev/null && command -v ibv_rc_pingpong >/dev/null && return
  [ "$(id -u)" = 0 ] || { echo "roce-bench: please install perftest ibverbs-utils" >&2 && exit 125; }
  DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends perftest ibverbs-utils >&2
}

install
[ "${1:-}" != --install ] || exit 0
if [ -z "${LIBCLANG_PATH:-}" ] && [ -d /usr/lib/llvm-14/lib ]; then export LIBCLANG_PATH=/usr/lib/llvm-14/lib; fi
built=$(cargo build -p shmem --release --features roce --bench roce --bin shmemrun --message-format=json-render-diagnostics)
built=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' <<<"$built")
bench=$(grep /roce- <<<"$built") shmemrun=$(grep '/shmemrun$' <<<"$built")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What the guest runs: prints a line for each measurement: round, name, value.
cat >"$work/turns.sh" <<GUEST
#!/bin/sh
rounds=${1:-5} bench=$bench
GUEST
cat >>"$work/turns.sh" <<'GUEST'
# What waits for a minute is told of and given up.
ours() { SHMEM_TIMEOUT=60 $bench "$@" | sed "s/^/$round shmem_/"; }
# A server at the one device, a client at the other; the client's report is what counts.
theirs() {
  server="$1 -d rxe0 $2" client="$1 -d rxe1 $2"
  $server >/dev/null 2>&1 &
  sleep 1
  timeout 60 $client 127.0.0.1 2>&1
  wait $!
}
perf() { theirs "$1" "-x 1 -F $2" | awk -v round=$round -v name=$3 -v column=$4 '$1 ~ /^[0-9]+$/ && NF > 4 { print round, name, $column }'; }
for round in $(seq $rounds); do
  # With -U it prints each of the latencies, too.
  theirs /usr/bin/ib_write_lat "-x 1 -F -U -s 8 -n 1000" >/tmp/lat
  sed -n 's/^ *[0-9]*, *\([0-9.]*\) *$/\1/p' /tmp/lat | sort -n >/tmp/sorted
  awk -v round=$round '{ v[NR] = $1 } END { if (NR) print round, "ib_write_lat", v[int(NR / 2) + 1], v[int(NR / 10) + 1] }' /tmp/sorted
  ours put put_signal put_signal_add
  theirs /usr/bin/ibv_rc_pingpong "-g 1 -s 8 -n 1000" | sed -n "s/.* = \(.*\) usec\/iter/\1/p" | awk -v round=$round '{ print round, "ibv_rc_pingpong", $1 / 2 }'
  ours put_quiet get fetch_add iput barrier
  perf /usr/bin/ib_write_bw "-s 65536 -n 512" ib_write_bw_64k 4
  ours put_from_nbi_64k put_nbi_64k
  perf /usr/bin/ib_write_bw "-s 1048576 -n 32" ib_write_bw_1m 4
  ours put_from_nbi_1m put_nbi_1m
done
GUEST
chmod +x "$work/turns.sh"
export SOFTROCE_APPEND="${SOFTROCE_APPEND-idle=poll}"
SOFTROCE_FILES="$bench $shmemrun /usr/bin/ib_write_lat /usr/bin/ib_write_bw /usr/bin/ibv_rc_pingpong" \
  ci/softroce.sh "$work/turns.sh" | tr -d '\r' | tee "${ROCE_BENCH_LINES:-$work/lines}" >&2

# Medians, and the median of the ratios of what was measured in the same round.
awk '
  function middle(values, n,   i, j, t) {
    for (i = 2; i <= n; i++) for (j = i; j > 1 && values[j] < values[j - 1]; j--) { t = values[j]; values[j] = values[j - 1]; values[j - 1] = t }
    return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
  }
  function row(name, beside, unit,   r, n, ratios, mine, theirs) {
    for (r = 1; r <= rounds; r++) if ((r, "shmem_" name) in seen && (r, beside) in seen) {
      mine[++n] = seen[r, "shmem_" name]; theirs[n] = seen[r, beside]; ratios[n] = mine[n] / theirs[n]
    }
    if (n) printf "| %-18s | %-16s | %10.1f %-5s | %10.1f %-5s | %5.2f |\n", name, beside, middle(mine, n), unit, middle(theirs, n), unit, middle(ratios, n)
  }
  # A round, a name, a median and perhaps a tenth percentile; perftest says 0 or inf where it cannot tell the time.
  $1 ~ /^[0-9]+$/ && $3 > 0 {
    seen[$1, $2] = $3
    if (NF > 3) seen[$1, $2 "/10"] = $4
    if ($1 > rounds) rounds = $1
  }
  END {
    print "| shmem | beside | shmem | beside | ratio |\n|---|---|---|---|---|"
    row("put", "ib_write_lat", "us"); row("put/10", "ib_write_lat/10", "us"); row("put_signal", "ib_write_lat", "us"); row("put_signal_add", "ib_write_lat", "us")
    row("put", "ibv_rc_pingpong", "us")
    row("put_quiet", "ib_write_lat", "us"); row("get", "ib_write_lat", "us"); row("fetch_add", "ib_write_lat", "us")
    row("iput", "ib_write_lat", "us"); row("barrier", "ib_write_lat", "us")
    row("put_from_nbi_64k", "ib_write_bw_64k", "MiB/s"); row("put_nbi_64k", "ib_write_bw_64k", "MiB/s")
    row("put_from_nbi_1m", "ib_write_bw_1m", "MiB/s"); row("put_nbi_1m", "ib_write_bw_1m", "MiB/s")
  }' "${ROCE_BENCH_LINES:-$work/lines}"
