#!/usr/bin/env bash
# PostgreSQL with high availability, on one machine, for trying: three members, each with etcd, Patroni and PostgreSQL,
# and HAProxy in front, which leads every connection to the primary. One standby is synchronous: a commit is
# acknowledged only when two members have it.
#
#   deploy/postgres-ha.sh start FOLDER         start it; a new FOLDER is filled, an old one is continued
#   deploy/postgres-ha.sh url FOLDER           print the URL for `segue serve --store`
#   deploy/postgres-ha.sh status FOLDER        print the members, their roles and their lag
#   deploy/postgres-ha.sh kill-primary FOLDER  kill -9 the primary, with its Patroni and its etcd
#   deploy/postgres-ha.sh repair FOLDER        start what is dead, and wait until all members follow the primary
#   deploy/postgres-ha.sh stop FOLDER          stop everything; the data stays
#
# It needs the Debian packages postgresql, patroni, etcd-server and haproxy. All ports are free ones of the loopback
# interface. Nothing runs as root: if root calls it, the programs run as the user postgres. Connections need no
# password, so it is not for production; docs/postgres.md says what is different there.
set -euo pipefail

MEMBERS="1 2 3"
# How long a primary may be silent before another member takes over, in seconds. Patroni asks for
# LEADER_TTL_S >= LOOP_WAIT_S + 2 * RETRY_TIMEOUT_S.
LEADER_TTL_S=10
LOOP_WAIT_S=2
RETRY_TIMEOUT_S=4
START_TIMEOUT_S=120

fail() {
    echo "postgres-ha: $*" >&2
    exit 1
}

usage() {
    sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "$0"
    exit 2
}

[ $# -eq 2 ] || usage
command=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)

# Runs a program as a user that is not root, in the folder.
unprivileged() {
    if [ "$(id -u)" = 0 ]; then
        (cd "$folder" && exec setpriv --reuid=postgres --regid=postgres --clear-groups --inh-caps=-all "$@")
    else
        (cd "$folder" && exec "$@")
    fi
}

find_programs() {
    for program in etcd patroni patronictl haproxy; do
        PATH=$PATH:/usr/sbin command -v "$program" >/dev/null ||
            fail "there is no $program; on Debian: apt-get install postgresql patroni etcd-server haproxy"
    done
    PATH=$PATH:/usr/sbin
    programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
    [ -x "$programs/postgres" ] || fail "there is no PostgreSQL in /usr/lib/postgresql"
}

# Chooses the ports, once for a folder.
choose_ports() {
    python3 - <<'PYTHON'
import socket
names = [f"{kind}_{member}" for member in (1, 2, 3) for kind in ("CLIENT", "PEER", "REST", "SQL")] + ["PROXY"]
sockets = [socket.socket() for _ in names]
for name, bound in zip(names, sockets):
    bound.bind(("127.0.0.1", 0))
    print(f"{name}={bound.getsockname()[1]}")
PYTHON
}

port() {
    local name="$1_$2"
    echo "${!name}"
}

write_member() {
    local member=$1 others="" other
    for other in $MEMBERS; do
        others="$others${others:+,}127.0.0.1:$(port CLIENT "$other")"
    done
    cat >"$folder/patroni-$member.yml" <<YAML
scope: segue
name: member-$member
restapi:
  listen: 127.0.0.1:$(port REST "$member")
  connect_address: 127.0.0.1:$(port REST "$member")
etcd3:
  hosts: $others
bootstrap:
  dcs:
    ttl: $LEADER_TTL_S
    loop_wait: $LOOP_WAIT_S
    retry_timeout: $RETRY_TIMEOUT_S
    # A commit waits for one standby. Without any standby it waits, too: it is never acknowledged by one member alone.
    synchronous_mode: true
    synchronous_mode_strict: true
    # A crashed primary is not restarted in place if a standby can take over.
    primary_start_timeout: 0
    postgresql:
      use_pg_rewind: true
      parameters:
        max_connections: 200
        shared_buffers: 64MB
        synchronous_commit: 'on'
        wal_keep_size: 512MB
  initdb:
    - encoding: UTF8
    - locale: C
    - data-checksums
  pg_hba:
    - local all all trust
    - host all all 127.0.0.1/32 trust
    - host replication all 127.0.0.1/32 trust
postgresql:
  listen: 127.0.0.1:$(port SQL "$member")
  connect_address: 127.0.0.1:$(port SQL "$member")
  data_dir: $folder/data-$member
  bin_dir: $programs
  pgpass: $folder/pgpass-$member
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
  authentication:
    superuser: {username: postgres}
    replication: {username: replicator}
    rewind: {username: postgres}
  parameters:
    unix_socket_directories: $folder
YAML
}

write_proxy() {
    local member
    cat >"$folder/haproxy.cfg" <<CFG
global
    maxconn 1000
defaults
    mode tcp
    timeout connect 2s
    timeout client 1h
    timeout server 1h
    timeout check 2s
    retries 1
listen postgres
    bind 127.0.0.1:$PROXY
    # Patroni answers 200 only on the primary that holds the leader key.
    option httpchk
    http-check send meth GET uri /primary
    http-check expect status 200
    default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
CFG
    for member in $MEMBERS; do
        echo "    server member-$member 127.0.0.1:$(port SQL "$member") check port $(port REST "$member")" \
            >>"$folder/haproxy.cfg"
    done
}

is_running() {
    [ -s "$folder/$1.pid" ] && kill -0 "$(cat "$folder/$1.pid")" 2>/dev/null
}

# Starts a program in the background unless it runs, with its id in NAME.pid and its output in NAME.log.
start_program() {
    local name=$1
    shift
    is_running "$name" && return
    # Its own output is closed, so that nobody who reads the output of this script waits for it.
    unprivileged setsid sh -c 'echo $$ >"$0.pid"; exec "$@" >>"$0.log" 2>&1' "$name" "$@" >/dev/null 2>&1 </dev/null &
}

start_member() {
    local member=$1 peers="" other
    for other in $MEMBERS; do
        peers="$peers${peers:+,}member-$other=http://127.0.0.1:$(port PEER "$other")"
    done
    start_program "etcd-$member" etcd --name "member-$member" --data-dir "$folder/etcd-$member" \
        --listen-client-urls "http://127.0.0.1:$(port CLIENT "$member")" \
        --advertise-client-urls "http://127.0.0.1:$(port CLIENT "$member")" \
        --listen-peer-urls "http://127.0.0.1:$(port PEER "$member")" \
        --initial-advertise-peer-urls "http://127.0.0.1:$(port PEER "$member")" \
        --initial-cluster "$peers" --heartbeat-interval 200 --election-timeout 2000 --logger zap
    start_program "patroni-$member" patroni "$folder/patroni-$member.yml"
}

# Prints the members as JSON, from the first Patroni that answers.
members_json() {
    local member
    for member in $MEMBERS; do
        python3 -c 'import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=2).read().decode())' \
            "http://127.0.0.1:$(port REST "$member")/cluster" 2>/dev/null && return
    done
    return 1
}

# Prints the number of the member that is the primary.
primary() {
    members_json | python3 -c 'import json, sys
for member in json.load(sys.stdin)["members"]:
    if member["role"] == "leader" and member["state"] == "running":
        print(member["name"].removeprefix("member-"))'
}

# Succeeds if there is a primary, a synchronous standby and a third member that follows.
is_complete() {
    members_json 2>/dev/null | python3 -c 'import json, sys
members = [m for m in json.load(sys.stdin)["members"] if m["state"] in ("running", "streaming")]
roles = sorted(m["role"] for m in members)
sys.exit(roles != ["leader", "replica", "sync_standby"])' 2>/dev/null
}

wait_until_complete() {
    local deadline=$((SECONDS + START_TIMEOUT_S))
    until is_complete; do
        [ $SECONDS -lt $deadline ] || fail "the members did not come together; see the logs in $folder"
        sleep 0.3
    done
}

run_sql() {
    unprivileged "$programs/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$PROXY" -U postgres -d postgres -c "$1"
}

start() {
    [ "$(id -u)" != 0 ] || chown postgres:postgres "$folder"
    chmod 700 "$folder"
    if [ ! -s "$folder/ports" ]; then
        choose_ports >"$folder/ports"
        . "$folder/ports"
        for member in $MEMBERS; do
            write_member "$member"
        done
        write_proxy
    fi
    . "$folder/ports"
    repair
    start_program haproxy haproxy -f "$folder/haproxy.cfg" -db
    local deadline=$((SECONDS + START_TIMEOUT_S))
    # HAProxy takes all members for primaries until it has checked them.
    until create_database >/dev/null 2>&1; do
        [ $SECONDS -lt $deadline ] || fail "the database could not be created; see $folder/haproxy.log"
        sleep 0.3
    done
    url
}

create_database() {
    [ -n "$(run_sql "SELECT 1 FROM pg_roles WHERE rolname = 'segue'")" ] || run_sql 'CREATE ROLE segue LOGIN' || return
    [ -n "$(run_sql "SELECT 1 FROM pg_database WHERE datname = 'segue'")" ] || run_sql 'CREATE DATABASE segue OWNER segue'
}

url() {
    echo "postgres://segue@127.0.0.1:$PROXY/segue"
}

repair() {
    for member in $MEMBERS; do
        start_member "$member"
    done
    wait_until_complete
}

# Kills a member like a power failure: nothing of it gets a chance to say goodbye.
kill_member() {
    local member=$1 server="" children=""
    [ ! -s "$folder/data-$member/postmaster.pid" ] || server=$(head -1 "$folder/data-$member/postmaster.pid")
    [ -z "$server" ] || children=$(pgrep -P "$server" || true)
    for name in patroni etcd; do
        kill -KILL "$(cat "$folder/$name-$member.pid")" 2>/dev/null || true
    done
    # shellcheck disable=SC2086  # one word for each process
    kill -KILL $server $children 2>/dev/null || true
    echo "killed member-$member"
}

kill_primary() {
    local found
    found=$(primary || true)
    [ -n "$found" ] || fail "there is no primary"
    kill_member "$found"
}

# Ends the programs with these names and waits for them. Patroni stops its PostgreSQL first.
stop_programs() {
    local name deadline=$((SECONDS + 60))
    for name in "$@"; do
        is_running "$name" && kill -TERM "$(cat "$folder/$name.pid")" || true
    done
    for name in "$@"; do
        while is_running "$name"; do
            [ $SECONDS -lt $deadline ] || fail "$name does not end"
            sleep 0.1
        done
        rm -f "$folder/$name.pid"
    done
}

stop() {
    local member patronis="" etcds=""
    for member in $MEMBERS; do
        patronis="$patronis patroni-$member"
        etcds="$etcds etcd-$member"
    done
    stop_programs haproxy
    # shellcheck disable=SC2086  # one word for each program
    stop_programs $patronis
    # shellcheck disable=SC2086
    stop_programs $etcds
}

find_programs
[ "$command" = start ] || [ -s "$folder/ports" ] || fail "nothing was started in $folder"
[ ! -s "$folder/ports" ] || . "$folder/ports"
case $command in
start) start ;;
url) url ;;
status) patronictl -c "$folder/patroni-1.yml" list ;;
kill-primary) kill_primary ;;
repair) repair ;;
stop) stop ;;
*) usage ;;
esac
