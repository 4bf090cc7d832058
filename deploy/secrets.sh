#!/bin/sh
# Make the secrets of compose.yaml in the folder secrets beside this file; what is there stays. Run it as root, because
# each file is given to the user that reads it in its container.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets
cd secrets

new() { # new FILE USER: the first writes stdin into the file, unless it is there
    [ -s "$1" ] || { cat > "$1.part" && mv "$1.part" "$1"; }
    chmod 400 "$1"
    [ "$(id -u)" != 0 ] || chown "$2" "$1"
}

openssl rand -hex 32 | new read_token 65534
printf 'read %s\nwrite %s\nadmin %s\n' "$(cat read_token)" "$(openssl rand -hex 32)" "$(openssl rand -hex 32)" |
    new tokens 10001
openssl rand -hex 32 | new postgres_password 999
printf 'postgresql://dgcf:%s@postgres:5432/dgcf\n' "$(cat postgres_password)" | new events_url 10001
openssl rand -hex 16 | new grafana_password 472
