#!/bin/sh
# Makes the secrets that the compose file wants, each once: run again, it changes nothing. The key is yours to put there.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
made() { # NAME: a random word, unless there is one
  [ -s "secrets/$1" ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > "secrets/$1"
}
made database_password
made operate_token
made grafana_password
[ -s secrets/database_url ] ||
  printf 'postgresql://routeproof:%s@postgres:5432/routeproof' "$(cat secrets/database_password)" > secrets/database_url
[ -e secrets/openai_key ] || printf 'put-the-key-here' > secrets/openai_key
# The service runs as a user of its own, and compose hands each file over with the rights that it has here. On this
# machine nobody else gets into the folder.
chmod 0700 secrets
chmod 0444 secrets/*
echo "deploy/compose/secrets is ready; put your key into openai_key"
